// One layer of a recurrent network in one direction, as one loop over time.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace torch_xla::ops {

enum class RnnCell : int64_t { kTanh, kRelu, kLstm, kGru };

// How many gates of the hidden size a cell's weights hold.
constexpr int64_t GatesOf(RnnCell cell) {
  return cell == RnnCell::kLstm ? 4 : cell == RnnCell::kGru ? 3 : 1;
}

// What a scan is made of. T steps of B rows, hidden size H, output size P (H without projection).
// Tensors that a cell lacks are undefined.
struct RnnInputs {
  at::Tensor gates;    // [T, B, gates * H]: the input's part of the gates, its bias included
  at::Tensor h;        // [B, P]
  at::Tensor c;        // [B, H]; LSTM only
  at::Tensor w_hh;     // [gates * H, P]
  at::Tensor b_hh;     // [gates * H], or undefined
  at::Tensor w_hr;     // [P, H], or undefined
  at::Tensor lengths;  // int64[B], or undefined: rows keep their state from their length on

  static constexpr size_t kCount = 7;
  std::vector<at::Tensor> list() const { return {gates, h, c, w_hh, b_hh, w_hr, lengths}; }
  static RnnInputs Of(const std::vector<at::Tensor>& v) {
    return {v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
  }
};

struct RnnOutputs {
  at::Tensor y;  // [T, B, P]: the state after each step
  at::Tensor h;  // [B, P]
  at::Tensor c;  // [B, H]; LSTM only
  // For the gradient: cell states [T, B, H] (LSTM), gates [T, B, 4 H] (LSTM and GRU).
  at::Tensor cells, saved;
};

// `keep` fills what the gradient needs.
RnnOutputs RnnScan(RnnCell cell, bool reverse, const RnnInputs& in, bool keep);
// Gradients of the inputs in their order, undefined for the lengths and what is undefined itself.
// Gradients of the results that are undefined count as 0.
std::vector<at::Tensor> RnnScanBackward(RnnCell cell, bool reverse, const RnnInputs& in,
                                        const RnnOutputs& out, const at::Tensor& grad_y,
                                        const at::Tensor& grad_h, const at::Tensor& grad_c);

}  // namespace torch_xla::ops
