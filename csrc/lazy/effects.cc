#include "lazy/effects.h"

#include <array>
#include <atomic>

#include "base/error.h"

namespace torch_xla::lazy {
namespace {

constexpr size_t kMaxEffects = 4;
std::array<std::atomic<const ir::OpDef*>, kMaxEffects> effects{};
std::atomic<const ir::OpDef*> across_processes{nullptr};

}  // namespace

void RegisterEffect(const ir::OpDef& op) {
  for (auto& slot : effects) {
    const ir::OpDef* expected = nullptr;
    if (slot.compare_exchange_strong(expected, &op) || expected == &op) return;
  }
  XLA_INTERNAL_CHECK(false);
}

bool IsEffect(const ir::OpDef& op) {
  for (const auto& slot : effects) {
    const ir::OpDef* effect = slot.load(std::memory_order_acquire);
    if (effect == nullptr) return false;
    if (effect == &op) return true;
  }
  return false;
}

void SetAcrossProcesses(const ir::OpDef& op) { across_processes.store(&op); }

bool IsAcrossProcesses(const ir::OpDef& op) {
  return across_processes.load(std::memory_order_acquire) == &op;
}

}  // namespace torch_xla::lazy
