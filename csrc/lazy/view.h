// The kinds of view steps: each can read (parent -> view) and write (parent, view -> parent).
#pragma once

#include <cstdint>

#include "base/shape.h"
#include "ir/node.h"

namespace torch_xla::lazy {

enum class ViewKind : uint8_t {
  kReshape,
  kPermute,        // params: permutation
  kExpand,         // right-aligned broadcast; writing takes the first of the repeated elements
  kSlice,          // params: dim, start, step
  kDynamicSlice,   // params: dim; position: start, a program input, so that moving compiles nothing
  kDiagonal,       // params: offset, dim1, dim2
  kAsStrided,      // params: offset, strides..., over the parent in row-major order
  kBitcast,        // other dtype, the last dimension scaled by the ratio of sizes
  kViewAsReal,     // complex[...] -> real[..., 2]
  kViewAsComplex,  // real[..., 2] -> complex[...]
  kConj,
  kNeg,
};

struct ViewStep {
  ViewKind kind = ViewKind::kReshape;
  Shape shape;  // of the view
  Dims params;
  ir::Value position;  // kDynamicSlice only

  ir::Value Read(ir::Value parent) const;
  ir::Value Write(ir::Value parent, ir::Value view) const;
};

}  // namespace torch_xla::lazy
