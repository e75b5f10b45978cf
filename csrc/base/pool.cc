#include "base/pool.h"

#include <cstdint>
#include <mutex>
#include <new>

namespace torch_xla::pool {
namespace {

constexpr size_t kGranule = 64;
constexpr size_t kClasses = 16;  // up to 1 KiB
constexpr int kBatch = 64;       // blocks that move between a thread and the shared list at once

struct Block {
  Block* next;
};

struct List {
  Block* head = nullptr;
  int size = 0;
};

// Forward runs on one thread, backward on another, and sync frees what both made: without a shared
// list one thread would hoard what the others allocate anew.
struct Shared {
  std::mutex mutex;
  List lists[kClasses];
};
Shared& shared() {
  static auto* s = new Shared;
  return *s;
}

void Move(List& from, List& to, int n) {
  for (; n > 0 && from.head != nullptr; --n) {
    Block* block = from.head;
    from.head = block->next;
    --from.size;
    block->next = to.head;
    to.head = block;
    ++to.size;
  }
}

thread_local bool dead = false;  // others' thread_local destructors may still allocate and free

// The calling thread's lists, null before its first use and after its end. In the static block:
// each operator asks some four times, and a call per access is what recording may not cost.
[[gnu::tls_model("initial-exec")]] thread_local List* mine = nullptr;

struct Owner {
  List lists[kClasses];
  ~Owner() {
    mine = nullptr;
    dead = true;
    std::lock_guard<std::mutex> lock(shared().mutex);
    for (size_t c = 0; c < kClasses; ++c) Move(lists[c], shared().lists[c], lists[c].size);
  }
};
thread_local Owner owner;

size_t ClassOf(size_t bytes) { return (bytes - 1) / kGranule; }

// Whether the thread has lists now.
bool Begin() {
  if (mine == nullptr && !dead) mine = owner.lists;
  return mine != nullptr;
}

void* Pop(List& list) {
  Block* block = list.head;
  list.head = block->next;
  --list.size;
  return block;
}

[[gnu::noinline]] void* AllocateNew(size_t c) {
  if (Begin()) {
    {
      std::lock_guard<std::mutex> lock(shared().mutex);
      Move(shared().lists[c], mine[c], kBatch);
    }
    if (mine[c].head != nullptr) return Pop(mine[c]);
  }
  return ::operator new(kGranule*(c + 1));
}

[[gnu::noinline]] void Spill(List& list, size_t c) {
  std::lock_guard<std::mutex> lock(shared().mutex);
  List& to = shared().lists[c];
  Move(list, to, kBatch);
  while (to.size > 1024 * kBatch) ::operator delete(Pop(to));  // what a burst left behind
}

}  // namespace

void* Allocate(size_t bytes) {
  const size_t c = ClassOf(bytes);
  if (c >= kClasses) return ::operator new(bytes);
  if (mine != nullptr && mine[c].head != nullptr) [[likely]]
    return Pop(mine[c]);
  return AllocateNew(c);
}

void Free(void* p, size_t bytes) {
  const size_t c = ClassOf(bytes);
  if (c >= kClasses || (mine == nullptr && !Begin())) {
    ::operator delete(p);
    return;
  }
  List& list = mine[c];
  auto* block = static_cast<Block*>(p);
  block->next = list.head;
  list.head = block;
  if (++list.size > 4 * kBatch) [[unlikely]]
    Spill(list, c);
}

}  // namespace torch_xla::pool
