// Memory that the processes of one host see together, and their transport over it.
//
// Each process has one memfd, a large sparse file without a name: nothing is left of it when its
// processes end, however they do. The others map it whole, through /proc/<pid>/fd.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dist/memory.h"
#include "dist/transport.h"

namespace torch_xla::dist {

// How another process of the host finds a SharedMemory, and the control block for one group in it.
struct SharedAddress {
  int64_t pid = 0;
  int64_t fd = -1;
  int64_t size = 0;
  uint64_t token = 0;
  int64_t control = 0;
};

class SharedMemory final : public Memory {
 public:
  // Throws kUnavailable where the system offers none.
  SharedMemory();
  ~SharedMemory() override;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  char* Allocate(size_t size) override;
  void Free(char* data, size_t size) override;

  // Where in the memory `data` is; -1: it is not.
  int64_t OffsetOf(const void* data) const;
  // An address with a fresh control block for a group of `members`, which is never freed.
  SharedAddress NewGroup(size_t members);
  char* base() const { return base_; }

 private:
  int fd_ = -1;
  char* base_ = nullptr;
  size_t size_ = 0;
  uint64_t token_ = 0;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset -> size, no two adjacent
};

// Member `index` of a group whose members gave `addresses`; the control block is the first one's.
// Throws kUnavailable when a member's memory cannot be reached.
std::unique_ptr<Transport> MakeSharedMemoryTransport(std::shared_ptr<SharedMemory> mine, int index,
                                                     const std::vector<SharedAddress>& addresses);

}  // namespace torch_xla::dist
