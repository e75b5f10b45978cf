#include "ops/rnn_scan.h"

#include "hlo/control.h"
#include "hlo/dot.h"
#include "ops/lowering.h"
#include "ops/step_rows.h"

namespace torch_xla::ops {
namespace {

using Values = std::span<const Value>;

// The node's attribute words.
struct Options {
  RnnCell cell;
  bool reverse, keep;
  bool has_c, has_b, has_r, has_lengths;

  static Options Of(RnnCell cell, bool reverse, bool keep, const RnnInputs& in) {
    return {cell,
            reverse,
            keep,
            in.c.defined(),
            in.b_hh.defined(),
            in.w_hr.defined(),
            in.lengths.defined()};
  }
  static Options Of(const ir::Node& n) {
    auto w = n.words();
    return {static_cast<RnnCell>(w[0]),
            w[1] != 0,
            w[2] != 0,
            w[3] != 0,
            w[4] != 0,
            w[5] != 0,
            w[6] != 0};
  }
  std::array<int64_t, 7> words() const {
    return {static_cast<int64_t>(cell), reverse, keep, has_c, has_b, has_r, has_lengths};
  }
  bool saves() const { return cell == RnnCell::kLstm || cell == RnnCell::kGru; }
};

// The operands, as far as there are, in the type of the computation.
struct Operands {
  Value gates, h, c, w_hh, b_hh, w_hr, lengths;
  int64_t t, b, hidden;
  size_t used;

  Operands(const Options& o, Values in) {
    size_t i = 0;
    auto next = [&](bool given) { return given ? Widen(in[i++]) : Value(); };
    gates = next(true);
    h = next(true);
    c = next(o.has_c);
    w_hh = next(true);
    b_hh = next(o.has_b);
    w_hr = next(o.has_r);
    lengths = next(o.has_lengths);
    used = i;
    t = gates.dim(0);
    b = gates.dim(1);
    hidden = w_hh.dim(0) / GatesOf(o.cell);
  }
};

Value Product(Value a, Value b, const Dims& contract_a, const Dims& contract_b) {
  return hlo::DotGeneral(a, b, {}, {}, contract_a, contract_b, a.builder().precision());
}
// a[b, k] x w[n, k] -> [b, n]
Value TimesRows(Value a, Value w) { return Product(a, w, {1}, {1}); }
// a[b, n] x w[n, k] -> [b, k]
Value TimesColumns(Value a, Value w) { return Product(a, w, {1}, {0}); }
// a[t, b, n], c[t, b, k] -> [n, k], summed over time and rows.
Value OuterSum(Value a, Value c) { return Product(a, c, {0, 1}, {0, 1}); }

Value Gate(Value gates, int64_t i, int64_t hidden) {
  return hlo::SliceDim(gates, 1, i * hidden, (i + 1) * hidden);
}

// From the back in time, or from the front.
using Step = std::function<std::vector<Value>(Value step, Values carried)>;
std::vector<Value> Loop(Builder& b, int64_t steps, bool backwards, std::vector<Value> carried,
                        const Step& step) {
  carried.insert(carried.begin(), hlo::ScalarInt(b, DType::kS32, 0));
  auto cond = [&](Builder&, Values v) {
    return std::vector<Value>{hlo::Lt(v[0], FullLike(v[0], static_cast<double>(steps)))};
  };
  auto body = [&](Builder&, Values v) {
    Value at = backwards ? RSub(static_cast<double>(steps - 1), v[0]) : v[0];
    std::vector<Value> next = step(at, v.subspan(1));
    next.insert(next.begin(), Plus(v[0], 1));
    return next;
  };
  std::vector<Value> end = hlo::While(carried, cond, body);
  end.erase(end.begin());
  return end;
}

// Where a row is still within its length, `now`, else `before`; both [b, n].
Value WhileLasting(const Operands& in, Value step, Value now, Value before) {
  if (!in.lengths.valid()) return now;
  Value lasts = hlo::Lt(FitTo(hlo::ConvertTo(step, DType::kS64), in.lengths), in.lengths);
  return hlo::Select(AlongDim(lasts, now.dims(), 0), now, before);
}

struct State {
  Value h, c, saved;
};

State Advance(const Options& o, const Operands& in, Value gates, Value h, Value c) {
  Value hidden = TimesRows(h, in.w_hh);
  if (in.b_hh.valid()) hidden = hlo::Add(hidden, AlongDim(in.b_hh, hidden.dims(), 1));
  auto gate = [&](Value x, int64_t i) { return Gate(x, i, in.hidden); };
  switch (o.cell) {
    case RnnCell::kTanh: return {hlo::Tanh(hlo::Add(gates, hidden)), {}, {}};
    case RnnCell::kRelu: {
      Value x = hlo::Add(gates, hidden);
      return {hlo::Max(x, FullLike(x, 0)), {}, {}};
    }
    case RnnCell::kLstm: {
      Value x = hlo::Add(gates, hidden);
      Value i = hlo::Logistic(gate(x, 0)), f = hlo::Logistic(gate(x, 1));
      Value g = hlo::Tanh(gate(x, 2)), out = hlo::Logistic(gate(x, 3));
      c = hlo::Add(hlo::Mul(f, c), hlo::Mul(i, g));
      h = hlo::Mul(out, hlo::Tanh(c));
      if (in.w_hr.valid()) h = TimesRows(h, in.w_hr);
      return {h, c, hlo::Concatenate({i, f, g, out}, 1)};
    }
    case RnnCell::kGru: {
      Value r = hlo::Logistic(hlo::Add(gate(gates, 0), gate(hidden, 0)));
      Value z = hlo::Logistic(hlo::Add(gate(gates, 1), gate(hidden, 1)));
      Value m = gate(hidden, 2);
      Value n = hlo::Tanh(hlo::Add(gate(gates, 2), hlo::Mul(r, m)));
      h = hlo::Add(n, hlo::Mul(z, hlo::Sub(h, n)));
      return {h, {}, hlo::Concatenate({r, z, n, m}, 1)};
    }
  }
  return {};
}

// Results: y, h, then c of an LSTM; with `keep`, cells of an LSTM and what the gates were.
void LowerScan(const ir::Node& n, Builder& b, Values operands, std::vector<Value>& out) {
  Options o = Options::Of(n);
  Operands in(o, operands);
  auto buffer = [&](int64_t size) {
    return hlo::Full(b, in.gates.shape().with({in.t, in.b, size}), 0);
  };
  std::vector<Value> carried{in.h, buffer(in.h.dim(1))};
  if (o.has_c) carried.push_back(in.c);
  if (o.keep && o.has_c) carried.push_back(buffer(in.hidden));
  if (o.keep && o.saves()) carried.push_back(buffer(4 * in.hidden));
  auto step = [&](Value at, Values v) {
    Value c = o.has_c ? v[2] : Value();
    State now = Advance(o, in, RowAt(in.gates, at), v[0], c);
    Value h = WhileLasting(in, at, now.h, v[0]);
    std::vector<Value> next{h, PutRow(v[1], at, h)};
    if (o.has_c) next.push_back(WhileLasting(in, at, now.c, c));
    if (o.keep && o.has_c) next.push_back(PutRow(v[3], at, next[2]));
    if (o.keep && o.saves()) next.push_back(PutRow(v.back(), at, now.saved));
    return next;
  };
  std::vector<Value> end = Loop(b, in.t, o.reverse, carried, step);
  std::swap(end[0], end[1]);
  for (size_t i = 0; i < end.size(); ++i) out.push_back(hlo::ConvertTo(end[i], n.shape(i).dtype));
}

// The state before each step: of buffer[t, b, n] with the first state in front.
Value Before(Value first, Value buffer, bool reverse) {
  int64_t t = buffer.dim(0);
  Dims dims = buffer.dims();
  dims[0] = 1;
  first = hlo::Reshape(first, dims);
  if (reverse) return hlo::Concatenate({hlo::SliceDim(buffer, 0, 1, t), first}, 0);
  return hlo::Concatenate({first, hlo::SliceDim(buffer, 0, 0, t - 1)}, 0);
}

// What the loop over the steps reads, all [t, b, ...].
struct Trace {
  Value y, h_before, cells, c_before, saved;
};

// The gradients of one step's gates, of those of the hidden state's part, and of the states before,
// the part through w_hh left out; `projected` is that of w_hr's result.
struct StepGradient {
  Value gates, hidden_gates, h, c;
};

// d / dx of logistic and tanh, from their values.
Value LogisticSlope(Value y) { return hlo::Mul(y, RSub(1, y)); }
Value TanhSlope(Value y) { return RSub(1, Square(y)); }

StepGradient Retreat(const Options& o, const Operands& in, const Trace& trace, Value at, Value dh,
                     Value dc) {
  auto gate = [&](Value x, int64_t i) { return Gate(x, i, in.hidden); };
  switch (o.cell) {
    case RnnCell::kTanh: {
      Value g = hlo::Mul(dh, TanhSlope(RowAt(trace.y, at)));
      return {g, g, FullLike(dh, 0), {}};
    }
    case RnnCell::kRelu: {
      Value y = RowAt(trace.y, at);
      Value g = Where(hlo::Gt(y, FullLike(y, 0)), dh, 0);
      return {g, g, FullLike(dh, 0), {}};
    }
    case RnnCell::kLstm: {
      Value x = RowAt(trace.saved, at);
      Value i = gate(x, 0), f = gate(x, 1), g = gate(x, 2), out = gate(x, 3);
      Value raw = in.w_hr.valid() ? TimesColumns(dh, in.w_hr) : dh;
      Value tc = hlo::Tanh(RowAt(trace.cells, at));
      dc = hlo::Add(dc, hlo::Mul(hlo::Mul(raw, out), TanhSlope(tc)));
      Value gates =
          hlo::Concatenate({hlo::Mul(hlo::Mul(dc, g), LogisticSlope(i)),
                            hlo::Mul(hlo::Mul(dc, RowAt(trace.c_before, at)), LogisticSlope(f)),
                            hlo::Mul(hlo::Mul(dc, i), TanhSlope(g)),
                            hlo::Mul(hlo::Mul(raw, tc), LogisticSlope(out))},
                           1);
      return {gates, gates, FullLike(dh, 0), hlo::Mul(dc, f)};
    }
    case RnnCell::kGru: {
      Value x = RowAt(trace.saved, at);
      Value r = gate(x, 0), z = gate(x, 1), n = gate(x, 2), m = gate(x, 3);
      Value dz = hlo::Mul(dh, hlo::Sub(RowAt(trace.h_before, at), n));
      dz = hlo::Mul(dz, LogisticSlope(z));
      Value dn = hlo::Mul(hlo::Mul(dh, RSub(1, z)), TanhSlope(n));
      Value dr = hlo::Mul(hlo::Mul(dn, m), LogisticSlope(r));
      return {hlo::Concatenate({dr, dz, dn}, 1),
              hlo::Concatenate({dr, dz, hlo::Mul(dn, r)}, 1),
              hlo::Mul(dh, z),
              {}};
    }
  }
  return {};
}

// Operands after the scan's: y, cells, saved, grad_y, grad_h, grad_c as far as the cell has them.
// Results: gradients of the scan's operands.
void LowerScanBackward(const ir::Node& n, Builder& b, Values operands, std::vector<Value>& out) {
  Options o = Options::Of(n);
  Operands in(o, operands);
  size_t i = in.used;
  auto next = [&](bool given) { return given ? Widen(operands[i++]) : Value(); };
  Trace trace;
  trace.y = next(true);
  trace.cells = next(o.has_c);
  trace.saved = next(o.saves());
  Value grad_y = next(true), grad_h = next(true), grad_c = next(o.has_c);
  trace.h_before = Before(in.h, trace.y, o.reverse);
  if (o.has_c) trace.c_before = Before(in.c, trace.cells, o.reverse);

  // Only a GRU tells the two parts of the gates apart.
  bool two = o.cell == RnnCell::kGru;
  Value gates = FullLike(in.gates, 0);
  std::vector<Value> carried{grad_h, gates};
  if (o.has_c) carried.push_back(grad_c);
  if (two) carried.push_back(gates);
  if (o.has_r) carried.push_back(FullLike(trace.y, 0));
  auto step = [&](Value at, Values v) {
    Value dh = hlo::Add(v[0], RowAt(grad_y, at));
    Value dc = o.has_c ? v[2] : Value();
    StepGradient g = Retreat(o, in, trace, at, dh, dc);
    auto lasting = [&](Value x) { return WhileLasting(in, at, x, FullLike(x, 0)); };
    Value hidden = lasting(g.hidden_gates);
    Value before = hlo::Add(g.h, TimesColumns(hidden, in.w_hh));
    std::vector<Value> result{WhileLasting(in, at, before, dh),
                              PutRow(v[1], at, two ? lasting(g.gates) : hidden)};
    if (o.has_c) result.push_back(WhileLasting(in, at, g.c, dc));
    if (two) result.push_back(PutRow(v[2], at, hidden));
    if (o.has_r) result.push_back(PutRow(v.back(), at, lasting(dh)));
    return result;
  };
  std::vector<Value> end = Loop(b, in.t, !o.reverse, carried, step);
  Value hidden_gates = two ? end[2] : end[1];
  std::vector<Value> grads{end[1], end[0]};
  if (o.has_c) grads.push_back(end[2]);
  grads.push_back(OuterSum(hidden_gates, trace.h_before));
  if (o.has_b) grads.push_back(Sum(hidden_gates, {0, 1}));
  if (o.has_r) {
    // The output before its projection.
    Value raw = hlo::Mul(hlo::SliceDim(trace.saved, 2, 3 * in.hidden, 4 * in.hidden),
                         hlo::Tanh(trace.cells));
    grads.push_back(OuterSum(end.back(), raw));
  }
  for (size_t k = 0; k < grads.size(); ++k) {
    out.push_back(hlo::ConvertTo(grads[k], n.shape(k).dtype));
  }
}

// The operands that there are.
void Add(std::vector<ir::Value>& operands, std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& t : tensors) {
    if (t.defined()) operands.push_back(Unwrap(t).value());
  }
}

std::vector<at::Tensor> Record(const ir::OpDef& op, std::vector<ir::Value> operands,
                               const std::vector<Shape>& shapes, const Options& options,
                               int device) {
  op.CountRecorded();
  auto words = options.words();
  Ref<ir::Node> node = ir::Node::Make(op, operands, shapes, words);
  std::vector<at::Tensor> out;
  for (uint32_t i = 0; i < shapes.size(); ++i) out.push_back(Wrap(ir::Value{node, i}, device));
  return out;
}

}  // namespace

RnnOutputs RnnScan(RnnCell cell, bool reverse, const RnnInputs& in, bool keep) {
  static const ir::OpDef op("aten::rnn_scan", LowerScan);
  Options o = Options::Of(cell, reverse, keep, in);
  std::vector<ir::Value> operands;
  Add(operands, {in.gates, in.h, in.c, in.w_hh, in.b_hh, in.w_hr, in.lengths});
  Shape gates = ShapeOf(in.gates), h = ShapeOf(in.h);
  int64_t t = gates.dims[0], b = gates.dims[1], hidden = gates.dims[2] / GatesOf(cell);
  std::vector<Shape> shapes{h.with({t, b, h.dims[1]}), h};
  if (o.has_c) shapes.push_back(ShapeOf(in.c));
  if (keep && o.has_c) shapes.push_back(gates.with({t, b, hidden}).with(Wide(gates.dtype)));
  if (keep && o.saves()) shapes.push_back(gates.with({t, b, 4 * hidden}).with(Wide(gates.dtype)));
  auto r = Record(op, std::move(operands), shapes, o, Unwrap(in.gates).device());
  RnnOutputs out{r[0], r[1], {}, {}, {}};
  if (o.has_c) out.c = r[2];
  if (keep && o.has_c) out.cells = r[3];
  if (keep && o.saves()) out.saved = r.back();
  return out;
}

std::vector<at::Tensor> RnnScanBackward(RnnCell cell, bool reverse, const RnnInputs& in,
                                        const RnnOutputs& out, const at::Tensor& grad_y,
                                        const at::Tensor& grad_h, const at::Tensor& grad_c) {
  static const ir::OpDef op("aten::rnn_scan_backward", LowerScanBackward);
  Options o = Options::Of(cell, reverse, /*keep=*/true, in);
  std::vector<ir::Value> operands;
  Add(operands, {in.gates, in.h, in.c, in.w_hh, in.b_hh, in.w_hr, in.lengths, out.y, out.cells,
                 out.saved, grad_y, grad_h, grad_c});
  std::vector<Shape> shapes;
  for (const at::Tensor& t : {in.gates, in.h, in.c, in.w_hh, in.b_hh, in.w_hr}) {
    if (t.defined()) shapes.push_back(ShapeOf(t));
  }
  auto grads = Record(op, std::move(operands), shapes, o, Unwrap(in.gates).device());
  std::vector<at::Tensor> all;
  size_t next = 0;
  for (const at::Tensor& t : {in.gates, in.h, in.c, in.w_hh, in.b_hh, in.w_hr}) {
    all.push_back(t.defined() ? grads[next++] : at::Tensor());
  }
  all.emplace_back();  // the lengths
  return all;
}

}  // namespace torch_xla::ops
