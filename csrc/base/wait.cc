#include "base/wait.h"

#include <pthread.h>

#include <atomic>
#include <utility>

#include "base/error.h"
#include "base/flags.h"

namespace torch_xla {
namespace {

std::function<bool()>& Check() {
  static auto* check = new std::function<bool()>;
  return *check;
}

std::atomic<bool> forked{false};
[[maybe_unused]] const int fork_hook =
    pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });

}  // namespace

void SetInterruptCheck(std::function<bool()> check) { Check() = std::move(check); }

bool InterruptRequested() { return Check() && Check()(); }

std::chrono::duration<double> WaitTimeout() {
  return std::chrono::duration<double>(flags::GetDouble(flags::Flag::kWaitTimeoutS));
}

void WaitFor(std::unique_lock<std::mutex>& lock, std::condition_variable& cv,
             const std::function<bool()>& done, const std::function<std::string()>& what,
             std::chrono::duration<double> limit) {
  constexpr auto kTick = std::chrono::milliseconds(50);
  auto start = std::chrono::steady_clock::now();
  while (!cv.wait_for(lock, kTick, done)) {
    lock.unlock();  // the check takes the GIL
    bool interrupted = InterruptRequested();
    lock.lock();
    if (interrupted) throw Interrupted();
    std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (limit.count() > 0 && waited > limit && !done()) {
      Throw(Code::kDeadlineExceeded, "waited ", static_cast<int64_t>(waited.count()), " s for ",
            what(), " (XLA_WAIT_TIMEOUT_S)");
    }
  }
}

bool InForkedChild() { return forked.load(std::memory_order_relaxed); }

void CheckNotForked() {
  XLA_CHECK(!InForkedChild(), kFailedPrecondition,
            "cannot use XLA in a forked process; start the process with the 'spawn' method");
}

}  // namespace torch_xla
