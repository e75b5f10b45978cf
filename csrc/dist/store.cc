#include "dist/store.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace torch_xla::dist {
namespace {

// c10d's words without its stack trace.
template <typename Fn>
auto Translated(const std::string& key, Fn fn) {
  try {
    return fn();
  } catch (const c10::DistError& e) {
    const bool late = std::string(e.what_without_backtrace()).find("imeout") != std::string::npos;
    Throw(late ? Code::kDeadlineExceeded : Code::kUnavailable, "the program's store, for ", key,
          ": ", e.what_without_backtrace());
  } catch (const c10::Error& e) {
    Throw(Code::kUnavailable, "the program's store, for ", key, ": ", e.what_without_backtrace());
  }
}

class C10dStore final : public pjrt::KeyValueStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  // A wait of the store keeps its connection busy, and others may be about to set the key.
  std::string Get(const std::string& key, std::chrono::milliseconds limit) override {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (true) {
      if (auto value = TryGet(key)) return *value;
      XLA_CHECK(std::chrono::steady_clock::now() < end, kDeadlineExceeded, "waited ", limit.count(),
                " ms for another process to set ", key);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  std::optional<std::string> TryGet(const std::string& key) override {
    return Translated(key, [&]() -> std::optional<std::string> {
      if (!store_->check({key})) return std::nullopt;
      const std::vector<uint8_t> value = store_->get(key);
      return std::string(value.begin(), value.end());
    });
  }
  void Set(const std::string& key, const std::string& value) override {
    Translated(key, [&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
  }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<pjrt::KeyValueStore> MakeKeyValueStore(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<C10dStore>(std::move(store));
}

}  // namespace torch_xla::dist
