// Small-block allocation for nodes and tensor states: a free list per thread and size class.
#pragma once

#include <cstddef>

namespace torch_xla::pool {

// Blocks up to 1 KiB come from free lists, larger ones from operator new. A block may be freed on
// another thread than the one that took it. `bytes` must be equal in both calls.
void* Allocate(size_t bytes);
void Free(void* block, size_t bytes);

}  // namespace torch_xla::pool
