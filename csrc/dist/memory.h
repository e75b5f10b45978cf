// Where collectives keep what travels, between a program's buffers and the transport.
#pragma once

#include <cstddef>
#include <memory>

namespace torch_xla::dist {

// Thread-safe.
class Memory {
 public:
  virtual ~Memory() = default;
  // Aligned for every type; throws kResourceExhausted.
  virtual char* Allocate(size_t size) = 0;
  virtual void Free(char* data, size_t size) = 0;
};

// new and delete.
std::shared_ptr<Memory> HeapMemory();

// Results are fresh memory, and most of the time to write them goes into its pages: large ones
// where that pays. Nothing is written.
void WantLargePages(void* data, size_t size);

struct FreeBytes {
  Memory* memory = nullptr;
  size_t size = 0;
  void operator()(char* data) const { memory->Free(data, size); }
};
// Must not outlive its memory.
using Bytes = std::unique_ptr<char[], FreeBytes>;

inline Bytes AllocateBytes(Memory& memory, size_t size) {
  return {memory.Allocate(size), FreeBytes{&memory, size}};
}

}  // namespace torch_xla::dist
