// The replicas of one process: their collectives meet in memory and work on the devices' buffers
// themselves.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "dist/collective.h"

namespace torch_xla::dist {

// The device's buffers of one part. Nobody touches them after the collective is done.
struct PartBuffers {
  std::vector<std::span<const char>> tensors;
  std::span<char> out;
};

struct Buffers {
  std::vector<PartBuffers> parts;
  std::function<void(const Status&)> done;  // called once
};

class LocalWorld {
 public:
  explicit LocalWorld(int64_t size) : size_(size) {}

  int64_t size() const { return size_; }

  // What a rank brings to a collective.
  struct Guest {
    int64_t rank = 0;
    int64_t sequence = 0;
    std::string name;  // for the others' messages
    const Collective* collective = nullptr;
    Buffers* buffers = nullptr;
  };
  // Waits until all of `scope` are there, and does this rank's share of the work. Throws when they
  // bring different collectives, when a rank is gone, and after 0.8 of XLA_WAIT_TIMEOUT_S.
  void Run(const Ranks& scope, const Guest& me);

  // The rank takes part no more; what is said first counts.
  void Gone(int64_t rank, const std::string& why);

 private:
  struct Meeting;
  std::shared_ptr<Meeting> Meet(const Ranks& scope, size_t place, const Guest& me);
  void Leave(Meeting& meeting);
  std::string WhoIsGone(const Ranks& scope, const Meeting& meeting) const;

  const int64_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Ranks, std::shared_ptr<Meeting>> open_;  // where somebody waits for others
  std::vector<std::pair<int64_t, std::string>> gone_;
};

// Of guests that brought different collectives: what each one has.
[[noreturn]] void ThrowDifferent(const Ranks& ranks, std::span<const std::string> names);

}  // namespace torch_xla::dist
