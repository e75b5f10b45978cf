#include "lazy/threads.h"

namespace torch_xla::lazy {

void Threads::Begin() {
  me_ = ir::ThisRecorder();
  decided_.clear();
  State& mine = Of(me_);
  since_ = mine.synced != 0 ? mine.synced : ir::RecorderOf(me_).born;
  mine.synced = ir::Tick();
  mine.left_out = 0;
}

bool Threads::Take(ir::RecorderId id) {
  if (id == me_ || id == ir::kNobody) return true;
  auto [it, is_new] = decided_.try_emplace(id, false);
  if (is_new) it->second = Decide(id);
  return it->second;
}

Threads::State& Threads::Of(ir::RecorderId id) {
  State& s = states_[id];
  if (uint64_t born = ir::RecorderOf(id).born; s.born != born) s = {born, 0, 0};
  return s;
}

bool Threads::Decide(ir::RecorderId id) {
  const ir::Recorder r = ir::RecorderOf(id);
  if (!r.alive) return true;
  State& s = Of(id);
  // One that never syncs has others do it. If it did nothing since this thread's latest sync, its
  // part is done; else it gets the benefit of the doubt, but not for ever.
  if (s.synced == 0 && r.latest < since_) return true;
  constexpr int kPatience = 2, kPatienceWithSyncers = 64;
  if (s.left_out >= (s.synced == 0 ? kPatience : kPatienceWithSyncers)) return true;
  ++s.left_out;
  return false;
}

}  // namespace torch_xla::lazy
