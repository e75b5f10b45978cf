// Random bits from a counter: Threefry-2x32 with 13 rounds (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). Element i is a function of (seed, offset + i) alone, made
// of elementwise integer operations: they fuse with what uses them and give the same numbers on
// every plugin.
#pragma once

#include "ops/lowering.h"

namespace torch_xla::ops {

// n blocks of 64 bits; all values are of dimensions [n].
class RandomBits {
 public:
  // `seed` and `offset` are int64 scalars.
  RandomBits(Value seed, Value offset, int64_t n);

  Value low() const { return low_; }    // uint32
  Value high() const { return high_; }  // uint32
  Value all() const;                    // uint64

  // Block number `step` (a uint32 scalar) of each element's own stream, whose key is its block
  // here: for rejection, where elements need different numbers of blocks. A draw that has reserved
  // n numbers thus never meets the next one's.
  RandomBits Block(Value step) const;

  // In [0, 1), with as many bits as the type has: 24, 53, for half types 8 and 11.
  Value Uniform(DType dtype) const;
  // In (0, 1), in float32 or float64.
  Value OpenUniform(DType dtype) const;
  // The same of one of the words: 23 bits in float32, 32 in float64.
  static Value OpenUniform(Value word, DType dtype);
  // Of mean 0 and deviation 1, in float32 or float64.
  Value Normal(DType dtype) const;

 private:
  RandomBits(Value low, Value high) : low_(low), high_(high) {}
  Value Below(Value bits, int mantissa, DType dtype) const;

  Value low_, high_;
};

}  // namespace torch_xla::ops
