// How the members of one group of replicas move bytes to each other: between processes (gloo), or
// between the devices of one client. What travels, and what is computed, is the communicator's
// business.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "dist/reduce.h"

namespace torch_xla::dist {

// Every call is made by all members in one order, blocks, and throws when the time limit is over or
// a peer is gone. Ranks count within the group.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // in[bytes] of each member -> out[size][bytes]
  virtual void AllGather(const void* in, void* out, size_t bytes) = 0;
  // in[size][bytes] -> out[size][bytes], where out[i] is member i's in[rank]
  virtual void AllToAll(const void* in, void* out, size_t bytes) = 0;
  virtual void Broadcast(void* data, size_t bytes, int root) = 0;
  // Sends to one member and receives from one; -1 is nobody. One may be one's own.
  virtual void Exchange(const void* send, int to, void* receive, int from, size_t bytes) = 0;
  // In place; false where it is not offered for the type, and nothing was done.
  virtual bool AllReduce(Reduce op, DType dtype, void* data, size_t count) = 0;
  // in[size][count] of each member -> out[count], member i gets the i-th row; false: not offered.
  virtual bool ReduceScatter(Reduce op, DType dtype, const void* in, void* out, size_t count) = 0;
};

}  // namespace torch_xla::dist
