// The store through which a plugin's clients of several processes find each other.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace torch_xla::pjrt {

// Thread-safe. Failures are torch_xla::Error.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // Waits until somebody has set the key; kDeadlineExceeded after `limit`.
  virtual std::string Get(const std::string& key, std::chrono::milliseconds limit) = 0;
  virtual std::optional<std::string> TryGet(const std::string& key) = 0;
  virtual void Set(const std::string& key, const std::string& value) = 0;
};

// Given to the clients that are made from now on, and kept for ever: a client may ask long after it
// was made, such as for the first collective of a group.
void SetKeyValueStore(std::shared_ptr<KeyValueStore> store);
KeyValueStore* GetKeyValueStore();

}  // namespace torch_xla::pjrt
