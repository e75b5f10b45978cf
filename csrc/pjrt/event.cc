#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "base/wait.h"
#include "pjrt/client.h"

namespace torch_xla::pjrt {

void Event::OnReady(std::function<void(const Status&)> fn) const {
  if (!impl_) {
    fn(Status());
    return;
  }
  CheckNotForked();
  impl_->OnReady(std::move(fn));
}

void Event::Wait(const std::string& what) const {
  if (!impl_) return;
  CheckNotForked();
  // Shared with the callback, which may come after a wait that gave up.
  struct State {
    std::mutex mutex;
    std::condition_variable cv;
    bool done = false;
    Status status;
  };
  auto state = std::make_shared<State>();
  impl_->OnReady([state](const Status& status) {
    std::lock_guard<std::mutex> lock(state->mutex);
    state->status = status;
    state->done = true;
    state->cv.notify_all();
  });
  std::unique_lock<std::mutex> lock(state->mutex);
  WaitFor(
      lock, state->cv, [&] { return state->done; }, [&] { return what; });
  state->status.ThrowIfError();
}

}  // namespace torch_xla::pjrt
