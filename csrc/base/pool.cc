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

// Trivially destructible, apart from the object that empties them: others' thread_local
// destructors may still free after it ran.
thread_local List lists[kClasses];
thread_local bool dead = false;

struct Reaper {
  bool armed = false;
  ~Reaper() {
    dead = true;
    std::lock_guard<std::mutex> lock(shared().mutex);
    for (size_t c = 0; c < kClasses; ++c) Move(lists[c], shared().lists[c], lists[c].size);
  }
};
thread_local Reaper reaper;

size_t ClassOf(size_t bytes) { return (bytes - 1) / kGranule; }

}  // namespace

void* Allocate(size_t bytes) {
  size_t c = ClassOf(bytes);
  if (c >= kClasses || dead)
    return ::operator new(bytes > kGranule * (c + 1) ? bytes : kGranule * (c + 1));
  List& list = lists[c];
  if (list.head == nullptr) [[unlikely]] {
    reaper.armed = true;  // the first use constructs it
    {
      std::lock_guard<std::mutex> lock(shared().mutex);
      Move(shared().lists[c], list, kBatch);
    }
    if (list.head == nullptr) return ::operator new(kGranule*(c + 1));
  }
  Block* block = list.head;
  list.head = block->next;
  --list.size;
  return block;
}

void Free(void* p, size_t bytes) {
  size_t c = ClassOf(bytes);
  if (c >= kClasses || dead) {
    ::operator delete(p);
    return;
  }
  List& list = lists[c];
  if (list.head == nullptr) [[unlikely]]
    reaper.armed = true;  // for a thread that only frees
  auto* block = static_cast<Block*>(p);
  block->next = list.head;
  list.head = block;
  if (++list.size > 4 * kBatch) [[unlikely]] {
    std::lock_guard<std::mutex> lock(shared().mutex);
    List& to = shared().lists[c];
    Move(list, to, kBatch);
    while (to.size > 1024 * kBatch) {  // give back what a burst left behind
      Block* extra = to.head;
      to.head = extra->next;
      --to.size;
      ::operator delete(extra);
    }
  }
}

}  // namespace torch_xla::pool
