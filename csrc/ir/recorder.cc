#include "ir/recorder.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <mutex>

namespace torch_xla::ir {
namespace {

constexpr int kMaxRecorders = 1024;  // threads that may record at one time

struct Slot {
  std::atomic<bool> alive{false};
  std::atomic<uint64_t> born{0};
  std::atomic<uint64_t> latest{0};
};
Slot slots[kMaxRecorders];  // the first is kNobody's
std::mutex slots_mutex;     // guards who takes a slot
std::atomic<uint64_t> ticks{1};

// Trivially destructible: others' thread_local destructors may still record. In the static block:
// every node asks, and a call per access is what recording may not cost.
[[gnu::tls_model("initial-exec")]] thread_local Slot* mine = nullptr;

struct Leaver {
  Slot* slot = nullptr;
  ~Leaver() {
    mine = slots;
    if (slot != nullptr) slot->alive.store(false, std::memory_order_release);
  }
};
thread_local Leaver leaver;

bool IsAutogradWorker() {
  char name[16] = {};
  return pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 &&
         std::strncmp(name, "pt_autograd", 11) == 0;
}

}  // namespace

uint64_t Tick() { return ticks.fetch_add(1) + 1; }

namespace {

Slot* TakeSlot() {
  if (IsAutogradWorker()) return slots;
  std::lock_guard<std::mutex> lock(slots_mutex);
  // Round and round, so that what an ended thread recorded is long gone when its slot has another.
  static int last = 0;
  for (int n = 1; n < kMaxRecorders; ++n) {
    const int i = 1 + (last + n - 1) % (kMaxRecorders - 1);
    if (slots[i].alive.load(std::memory_order_acquire)) continue;
    slots[i].born.store(Tick());  // later than all that others recorded before
    slots[i].latest.store(0);
    slots[i].alive.store(true, std::memory_order_release);
    leaver.slot = &slots[i];
    last = i;
    return &slots[i];
  }
  return slots;
}

}  // namespace

RecorderId ThisRecorder() {
  Slot* slot = mine;
  if (slot == nullptr) [[unlikely]]
    mine = slot = TakeSlot();
  if (slot != slots) {
    slot->latest.store(ticks.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  return static_cast<RecorderId>(slot - slots);
}

Recorder RecorderOf(RecorderId id) {
  const Slot& slot = slots[id];
  return {slot.alive.load(std::memory_order_acquire), slot.born.load(), slot.latest.load()};
}

}  // namespace torch_xla::ir
