#include "dist/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace torch_xla::dist {
namespace {

class Heap final : public Memory {
 public:
  char* Allocate(size_t size) override { return new char[std::max<size_t>(size, 1)]; }
  void Free(char* data, size_t) override { delete[] data; }
};

}  // namespace

std::shared_ptr<Memory> HeapMemory() {
  static auto* memory = new std::shared_ptr<Memory>(std::make_shared<Heap>());
  return *memory;
}

void WantLargePages(void* data, size_t size) {
  constexpr size_t kLarge = size_t{1} << 22;
  if (size < kLarge) return;
  const auto page = static_cast<size_t>(getpagesize());
  const size_t skip = (page - reinterpret_cast<uintptr_t>(data) % page) % page;
  madvise(static_cast<char*>(data) + skip, (size - skip) / page * page, MADV_HUGEPAGE);
}

}  // namespace torch_xla::dist
