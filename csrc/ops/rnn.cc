// RNN, LSTM and GRU over sequences, padded or packed. PyTorch's own kernels are loops over
// operators that would record each time step; here each layer and direction is one matrix product
// for the inputs of all steps and one node with a loop (rnn_scan.h), so that the size of the graph
// does not depend on the length. Cells of one step are torch's composites.
#include <ATen/autocast_mode.h>
#include <ATen/ops/_pack_padded_sequence_backward_native.h>
#include <ATen/ops/_pack_padded_sequence_native.h>
#include <ATen/ops/_pad_packed_sequence_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "aten/tensor_impl.h"
#include "ops/rnn_scan.h"

namespace torch_xla::ops {
namespace {

using at::Tensor;
using at::TensorList;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

OptionalTensor Given(const Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; }

// The same as a scan, of operators that are differentiable any number of times.
RnnOutputs Unrolled(RnnCell cell, bool reverse, const RnnInputs& in) {
  int64_t steps = in.gates.size(0);
  Tensor h = in.h, c = in.c;
  std::vector<Tensor> y(static_cast<size_t>(steps));
  for (int64_t s = 0; s < steps; ++s) {
    int64_t t = reverse ? steps - 1 - s : s;
    Tensor gates = in.gates.select(0, t);
    Tensor hidden = at::linear(h, in.w_hh, Given(in.b_hh));
    Tensor next_h, next_c = c;
    if (cell == RnnCell::kLstm) {
      auto g = (gates + hidden).chunk(4, 1);
      next_c = at::sigmoid(g[1]) * c + at::sigmoid(g[0]) * at::tanh(g[2]);
      next_h = at::sigmoid(g[3]) * at::tanh(next_c);
      if (in.w_hr.defined()) next_h = at::linear(next_h, in.w_hr);
    } else if (cell == RnnCell::kGru) {
      auto x = gates.chunk(3, 1), m = hidden.chunk(3, 1);
      Tensor z = at::sigmoid(x[1] + m[1]);
      Tensor n = at::tanh(x[2] + at::sigmoid(x[0] + m[0]) * m[2]);
      next_h = n + z * (h - n);
    } else {
      next_h = cell == RnnCell::kTanh ? at::tanh(gates + hidden) : at::relu(gates + hidden);
    }
    if (in.lengths.defined()) {
      Tensor lasts = in.lengths.gt(t).unsqueeze(1);
      next_h = at::where(lasts, next_h, h);
      if (c.defined()) next_c = at::where(lasts, next_c, c);
    }
    h = next_h;
    c = next_c;
    y[static_cast<size_t>(t)] = h;
  }
  return {at::stack(y), h, c, {}, {}};
}

// A scan with its gradient.
struct DifferentiableScan : torch::autograd::Function<DifferentiableScan> {
  static constexpr size_t kOptions = 2;

  static variable_list forward(AutogradContext* ctx, RnnCell cell, bool reverse,
                               const Tensor& gates, const Tensor& h, const OptionalTensor& c,
                               const Tensor& w_hh, const OptionalTensor& b_hh,
                               const OptionalTensor& w_hr, const OptionalTensor& lengths) {
    auto value = [](const OptionalTensor& t) { return t.value_or(Tensor()); };
    RnnInputs in{gates, h, value(c), w_hh, value(b_hh), value(w_hr), value(lengths)};
    RnnOutputs out = RnnScan(cell, reverse, in, /*keep=*/true);
    ctx->saved_data["cell"] = static_cast<int64_t>(cell);
    ctx->saved_data["reverse"] = reverse;
    variable_list saved = in.list();
    saved.insert(saved.end(), {out.y, out.cells, out.saved});
    ctx->save_for_backward(saved);
    variable_list results{out.y, out.h};
    if (out.c.defined()) results.push_back(out.c);
    return results;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto cell = static_cast<RnnCell>(ctx->saved_data["cell"].toInt());
    bool reverse = ctx->saved_data["reverse"].toBool();
    variable_list saved = ctx->get_saved_variables();
    RnnInputs in = RnnInputs::Of(saved);
    variable_list result(kOptions);
    variable_list of_inputs;
    if (at::GradMode::is_enabled()) {
      of_inputs = DifferentiableGradient(cell, reverse, in, grads);
    } else {
      RnnOutputs out{saved[RnnInputs::kCount],
                     {},
                     {},
                     saved[RnnInputs::kCount + 1],
                     saved[RnnInputs::kCount + 2]};
      of_inputs = RnnScanBackward(cell, reverse, in, out, grads[0], grads[1],
                                  grads.size() > 2 ? grads[2] : Tensor());
    }
    result.insert(result.end(), of_inputs.begin(), of_inputs.end());
    return result;
  }

 private:
  // The gradient as a function of the inputs and of `grads`, for second derivatives.
  static variable_list DifferentiableGradient(RnnCell cell, bool reverse, const RnnInputs& in,
                                              const variable_list& grads) {
    RnnOutputs out = Unrolled(cell, reverse, in);
    variable_list results{out.y, out.h}, wanted;
    if (out.c.defined()) results.push_back(out.c);
    for (const Tensor& t : in.list()) {
      if (t.defined() && t.requires_grad()) wanted.push_back(t);
    }
    variable_list found = torch::autograd::grad(results, wanted, grads, /*retain_graph=*/true,
                                                /*create_graph=*/true, /*allow_unused=*/true);
    variable_list all;
    size_t next = 0;
    for (const Tensor& t : in.list()) {
      all.push_back(t.defined() && t.requires_grad() ? found[next++] : Tensor());
    }
    return all;
  }
};

RnnOutputs Scan(RnnCell cell, bool reverse, const RnnInputs& in) {
  bool needs_grad = false;
  for (const Tensor& t : in.list()) needs_grad = needs_grad || (t.defined() && t.requires_grad());
  if (!needs_grad || !at::GradMode::is_enabled()) {
    at::AutoDispatchBelowADInplaceOrView below;
    return RnnScan(cell, reverse, in, /*keep=*/false);
  }
  variable_list r = DifferentiableScan::apply(cell, reverse, in.gates, in.h, Given(in.c), in.w_hh,
                                              Given(in.b_hh), Given(in.w_hr), Given(in.lengths));
  return {r[0], r[1], r.size() > 2 ? r[2] : Tensor(), {}, {}};
}

// ---- Packed sequences: rows of all sequences that are long enough, step after step.

struct Packing {
  int64_t steps, batch;
  std::vector<int64_t> sizes;  // rows of each step

  explicit Packing(const Tensor& batch_sizes)
      : sizes(batch_sizes.data_ptr<int64_t>(),
              batch_sizes.data_ptr<int64_t>() + batch_sizes.numel()) {
    steps = batch_sizes.numel();
    batch = sizes.empty() ? 0 : sizes[0];
  }
  static bool Is(const Tensor& t) {
    return t.defined() && t.is_cpu() && t.dim() == 1 && t.scalar_type() == at::kLong &&
           t.is_contiguous() && t.numel() > 0;
  }
  int64_t rows() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
  std::vector<int64_t> Lengths() const {
    std::vector<int64_t> lengths(static_cast<size_t>(batch), 0);
    for (int64_t n : sizes) {
      for (int64_t b = 0; b < n; ++b) ++lengths[static_cast<size_t>(b)];
    }
    return lengths;
  }
  // Of each place (t, b) of `total` steps the row that belongs there, else `otherwise`.
  std::vector<int64_t> RowOfPlace(int64_t total, int64_t otherwise) const {
    std::vector<int64_t> rows;
    int64_t start = 0;
    for (int64_t t = 0; t < total; ++t) {
      int64_t n = t < steps ? sizes[static_cast<size_t>(t)] : 0;
      for (int64_t b = 0; b < batch; ++b) rows.push_back(b < n ? start + b : otherwise);
      start += n;
    }
    return rows;
  }
  // Of each row its place, in steps of `per_step` and sequences of `per_sequence` places.
  std::vector<int64_t> PlaceOfRow(int64_t per_step, int64_t per_sequence) const {
    std::vector<int64_t> places;
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t b = 0; b < sizes[static_cast<size_t>(t)]; ++b) {
        places.push_back(t * per_step + b * per_sequence);
      }
    }
    return places;
  }
};

// An input of the graph: other lengths of the same number of rows compile nothing.
Tensor OnDeviceOf(const Tensor& like, const std::vector<int64_t>& v) {
  return at::tensor(v, at::TensorOptions(at::kLong)).to(like.device());
}

// rows[n, ...] -> [dims..., ...] at the row numbers.
Tensor PickRows(const Tensor& rows, const Tensor& numbers, at::IntArrayRef dims) {
  std::vector<int64_t> shape(dims.begin(), dims.end());
  shape.insert(shape.end(), rows.sizes().begin() + 1, rows.sizes().end());
  return at::index_select(rows, 0, numbers).view(shape);
}

// ---- Layers.

struct Network {
  RnnCell cell;
  Tensor h, c;  // [layers * directions, B, ...]
  TensorList params;
  bool biases;
  int64_t layers;
  double dropout;
  bool train, bidirectional;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  bool projects() const { return c.defined() && h.size(2) != c.size(2); }
  int64_t per_cell() const { return 2 + (biases ? 2 : 0) + (projects() ? 1 : 0); }

  // Whether the arguments are such as the loop takes. What is refused goes to torch's composite,
  // which has words for what is wrong with it.
  bool Fits(const Tensor& input, int64_t batch) const {
    auto plain = [&](const Tensor& t) {
      return IsXla(t) && t.is_floating_point() && !t._fw_grad(0).defined() &&
             (t.scalar_type() == input.scalar_type() ||
              at::autocast::is_autocast_enabled(at::kXLA));
    };
    if (!plain(input) || !plain(h) || h.dim() != 3 || layers < 1 || batch < 1) return false;
    int64_t all = layers * directions(), gates = GatesOf(cell);
    int64_t p = h.size(2), hidden = c.defined() ? c.size(-1) : p;
    if (c.defined() && (!plain(c) || c.sizes() != at::IntArrayRef{all, batch, hidden}))
      return false;
    if (h.sizes() != at::IntArrayRef{all, batch, p}) return false;
    if (static_cast<int64_t>(params.size()) != all * per_cell()) return false;
    for (int64_t i = 0; i < all; ++i) {
      const Tensor* w = &params[static_cast<size_t>(i * per_cell())];
      int64_t width = i < directions() ? input.size(-1) : p * directions();
      std::vector<std::vector<int64_t>> expected{{gates * hidden, width}, {gates * hidden, p}};
      if (biases) expected.insert(expected.end(), 2, {gates * hidden});
      if (projects()) expected.push_back({p, hidden});
      for (size_t k = 0; k < expected.size(); ++k) {
        if (!plain(w[k]) || w[k].sizes() != at::IntArrayRef(expected[k])) return false;
      }
    }
    return true;
  }

  // x[T, B, ...], or rows[N, ...] with their packing -> the same of the last layer, and the states.
  std::tuple<Tensor, Tensor, Tensor> Run(Tensor x, const Packing* packing) const {
    Tensor lengths, row_of_place, place_of_row;
    if (packing) {
      lengths = OnDeviceOf(x, packing->Lengths());
      row_of_place = OnDeviceOf(x, packing->RowOfPlace(packing->steps, 0));
      place_of_row = OnDeviceOf(x, packing->PlaceOfRow(packing->batch, 1));
    }
    std::vector<Tensor> last_h, last_c;
    for (int64_t layer = 0; layer < layers; ++layer) {
      std::vector<Tensor> y;
      for (int64_t d = 0; d < directions(); ++d) {
        int64_t i = layer * directions() + d;
        const Tensor* w = &params[static_cast<size_t>(i * per_cell())];
        Tensor gates = at::linear(x, w[0], biases ? OptionalTensor(w[2]) : std::nullopt);
        if (packing) gates = PickRows(gates, row_of_place, {packing->steps, packing->batch});
        auto cast = [&](const Tensor& t) { return t.to(gates.scalar_type()); };
        RnnInputs in{gates, cast(h.select(0, i)), {}, cast(w[1]), {}, {}, lengths};
        if (c.defined()) in.c = cast(c.select(0, i));
        if (biases) in.b_hh = cast(w[3]);
        if (projects()) in.w_hr = cast(w[per_cell() - 1]);
        RnnOutputs out = Scan(cell, /*reverse=*/d == 1, in);
        y.push_back(packing ? PickRows(out.y.flatten(0, 1), place_of_row, {packing->rows()})
                            : out.y);
        last_h.push_back(out.h);
        if (c.defined()) last_c.push_back(out.c);
      }
      x = y.size() == 1 ? y[0] : at::cat(y, -1);
      if (dropout != 0 && train && layer < layers - 1) x = at::dropout(x, dropout, /*train=*/true);
    }
    return {x, at::stack(last_h), c.defined() ? at::stack(last_c) : Tensor()};
  }

  std::optional<std::tuple<Tensor, Tensor, Tensor>> RunPadded(const Tensor& input,
                                                              bool batch_first) const {
    if (input.dim() != 3 || input.size(batch_first ? 1 : 0) == 0) return {};
    Tensor x = batch_first ? input.transpose(0, 1) : input;
    if (!Fits(x, x.size(1))) return {};
    auto result = Run(x, nullptr);
    if (batch_first) std::get<0>(result) = std::get<0>(result).transpose(0, 1);
    return result;
  }
  std::optional<std::tuple<Tensor, Tensor, Tensor>> RunPacked(const Tensor& data,
                                                              const Tensor& batch_sizes) const {
    if (data.dim() != 2 || !Packing::Is(batch_sizes)) return {};
    Packing packing(batch_sizes);
    if (packing.rows() != data.size(0) || !Fits(data, packing.batch)) return {};
    return Run(data, &packing);
  }
};

// ---- The operators.

std::tuple<Tensor, Tensor, Tensor> Lstm(const Tensor& input, TensorList hx, TensorList params,
                                        bool biases, int64_t layers, double dropout, bool train,
                                        bool bidirectional, bool batch_first) {
  if (hx.size() == 2 && hx[0].dim() == 3 && hx[1].dim() == 3) {
    Network net{RnnCell::kLstm, hx[0],   hx[1], params,       biases,
                layers,         dropout, train, bidirectional};
    if (auto result = net.RunPadded(input, batch_first)) return *result;
  }
  return at::native::lstm(input, hx, params, biases, layers, dropout, train, bidirectional,
                          batch_first);
}

std::tuple<Tensor, Tensor, Tensor> LstmPacked(const Tensor& data, const Tensor& batch_sizes,
                                              TensorList hx, TensorList params, bool biases,
                                              int64_t layers, double dropout, bool train,
                                              bool bidirectional) {
  if (hx.size() == 2 && hx[0].dim() == 3 && hx[1].dim() == 3) {
    Network net{RnnCell::kLstm, hx[0],   hx[1], params,       biases,
                layers,         dropout, train, bidirectional};
    if (auto result = net.RunPacked(data, batch_sizes)) return *result;
  }
  return at::native::lstm(data, batch_sizes, hx, params, biases, layers, dropout, train,
                          bidirectional);
}

using Padded = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, TensorList, bool,
                                              int64_t, double, bool, bool, bool);
using Packed = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Tensor&,
                                              TensorList, bool, int64_t, double, bool, bool);

template <RnnCell kCell, Padded kComposite>
std::tuple<Tensor, Tensor> Rnn(const Tensor& input, const Tensor& hx, TensorList params,
                               bool biases, int64_t layers, double dropout, bool train,
                               bool bidirectional, bool batch_first) {
  Network net{kCell, hx, {}, params, biases, layers, dropout, train, bidirectional};
  if (auto r = net.RunPadded(input, batch_first)) return {std::get<0>(*r), std::get<1>(*r)};
  return kComposite(input, hx, params, biases, layers, dropout, train, bidirectional, batch_first);
}

template <RnnCell kCell, Packed kComposite>
std::tuple<Tensor, Tensor> RnnPacked(const Tensor& data, const Tensor& batch_sizes,
                                     const Tensor& hx, TensorList params, bool biases,
                                     int64_t layers, double dropout, bool train,
                                     bool bidirectional) {
  Network net{kCell, hx, {}, params, biases, layers, dropout, train, bidirectional};
  if (auto r = net.RunPacked(data, batch_sizes)) return {std::get<0>(*r), std::get<1>(*r)};
  return kComposite(data, batch_sizes, hx, params, biases, layers, dropout, train, bidirectional);
}

// ---- Packing and unpacking: one gather each.

std::tuple<Tensor, Tensor> PackPadded(const Tensor& input, const Tensor& lengths,
                                      bool batch_first) {
  bool good = input.dim() >= 2 && Packing::Is(lengths) &&
              lengths.numel() == input.size(batch_first ? 0 : 1);
  int64_t n = lengths.numel(), steps = good ? input.size(batch_first ? 1 : 0) : 0;
  const int64_t* length = good ? lengths.data_ptr<int64_t>() : nullptr;
  for (int64_t b = 0; good && b < n; ++b) {
    good = length[b] > 0 && length[b] <= steps && (b == 0 || length[b] <= length[b - 1]);
  }
  if (!good) return at::native::_pack_padded_sequence(input, lengths, batch_first);
  Tensor batch_sizes = at::full({length[0]}, 0, at::TensorOptions(at::kLong));
  auto* size = batch_sizes.data_ptr<int64_t>();
  for (int64_t b = 0; b < n; ++b) {
    for (int64_t t = 0; t < length[b]; ++t) ++size[t];
  }
  Packing packing(batch_sizes);
  auto places = batch_first ? packing.PlaceOfRow(1, steps) : packing.PlaceOfRow(n, 1);
  return {PickRows(input.flatten(0, 1), OnDeviceOf(input, places), {packing.rows()}), batch_sizes};
}

// rows[N, ...] in [steps, B, ...], or the other way round; a row of `value` elsewhere.
Tensor Spread(const Tensor& rows, const Packing& packing, int64_t steps, bool batch_first,
              const at::Scalar& value) {
  std::vector<int64_t> one = rows.sizes().vec();
  one[0] = 1;
  Tensor all = at::cat({rows, at::full(one, value, rows.options())});
  Tensor numbers = OnDeviceOf(rows, packing.RowOfPlace(steps, rows.size(0)));
  Tensor y = PickRows(all, numbers, {steps, packing.batch});
  return batch_first ? y.transpose(0, 1) : y;
}

Tensor PackPaddedBackward(const Tensor& grad, c10::SymIntArrayRef input_size,
                          const Tensor& batch_sizes, bool batch_first) {
  if (!Packing::Is(batch_sizes) || grad.dim() < 1) {
    return at::native::_pack_padded_sequence_backward_symint(grad, input_size, batch_sizes,
                                                             batch_first);
  }
  int64_t steps = C10_AS_INTARRAYREF_SLOW(input_size)[batch_first ? 1 : 0];
  return Spread(grad, Packing(batch_sizes), steps, batch_first, 0);
}

std::tuple<Tensor, Tensor> PadPacked(const Tensor& data, const Tensor& batch_sizes,
                                     bool batch_first, const at::Scalar& padding_value,
                                     int64_t total_length) {
  if (!Packing::Is(batch_sizes) || data.dim() < 1 ||
      (total_length > 0 && total_length < batch_sizes.numel())) {
    return at::native::_pad_packed_sequence(data, batch_sizes, batch_first, padding_value,
                                            total_length);
  }
  Packing packing(batch_sizes);
  int64_t steps = total_length > 0 ? total_length : packing.steps;
  return {Spread(data, packing, steps, batch_first, padding_value),
          at::tensor(packing.Lengths(), at::TensorOptions(at::kLong))};
}

// All of them are made of differentiable operators and take the place of composite kernels: the
// same with autograd and without (inference mode).
void RegisterAll(torch::Library& m) {
  m.impl("lstm.input", TORCH_FN(Lstm));
  m.impl("lstm.data", TORCH_FN(LstmPacked));
  m.impl("gru.input", TORCH_FN((Rnn<RnnCell::kGru, at::native::gru>)));
  m.impl("gru.data", TORCH_FN((RnnPacked<RnnCell::kGru, at::native::gru>)));
  m.impl("rnn_tanh.input", TORCH_FN((Rnn<RnnCell::kTanh, at::native::rnn_tanh>)));
  m.impl("rnn_tanh.data", TORCH_FN((RnnPacked<RnnCell::kTanh, at::native::rnn_tanh>)));
  m.impl("rnn_relu.input", TORCH_FN((Rnn<RnnCell::kRelu, at::native::rnn_relu>)));
  m.impl("rnn_relu.data", TORCH_FN((RnnPacked<RnnCell::kRelu, at::native::rnn_relu>)));
  m.impl("_pack_padded_sequence_backward", TORCH_FN(PackPaddedBackward));
  m.impl("_pad_packed_sequence", TORCH_FN(PadPacked));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, XLA, m) {
  RegisterAll(m);
  m.impl("_pack_padded_sequence", TORCH_FN(PackPadded));
}
TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { RegisterAll(m); }

}  // namespace torch_xla::ops
