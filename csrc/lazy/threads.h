// Threads that record on one device side by side: whose tensors a sync takes.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "ir/recorder.h"

namespace torch_xla::lazy {

// A thread that is in the middle of its step will sync for itself: half of its graph now and half
// later would be two programs that nobody has compiled (docs/design/threads.md). One per device,
// guarded by the lock of its graph.
class Threads {
 public:
  // A sync of the calling thread begins.
  void Begin();
  // Whether the sync takes what the thread recorded last.
  bool Take(ir::RecorderId id);

 private:
  struct State {
    uint64_t born = 0;    // whose state this is: numbers are used again
    uint64_t synced = 0;  // its latest sync; 0: never
    int left_out = 0;     // others' syncs since then that left its tensors out
  };
  State& Of(ir::RecorderId id);
  bool Decide(ir::RecorderId id);

  ir::RecorderId me_ = ir::kNobody;
  uint64_t since_ = 0;  // its sync before this one, or its birth
  std::unordered_map<ir::RecorderId, State> states_;
  std::unordered_map<ir::RecorderId, bool> decided_;  // for this sync
};

}  // namespace torch_xla::lazy
