// The threads that record. A node carries the number of its thread, so that a step of one thread
// does not take what another one has half recorded.
#pragma once

#include <cstdint>

namespace torch_xla::ir {

using RecorderId = uint16_t;
inline constexpr RecorderId kNobody = 0;  // leaves, and threads beyond the table's size

// The calling thread's number, given back when the thread ends. kNobody for autograd's workers:
// what they record belongs to the thread whose backward pass it is.
RecorderId ThisRecorder();

struct Recorder {
  bool alive = false;   // else its tensors are anybody's
  uint64_t born = 0;    // ticks of the clock below
  uint64_t latest = 0;  // when it recorded last
};
Recorder RecorderOf(RecorderId id);

// A clock that counts syncs: returns its new value, which is later than all recorded before.
uint64_t Tick();

}  // namespace torch_xla::ir
