// Nearest, linear, cubic and antialiased resampling: each output element is a weighted sum of a few
// input elements along each dimension, whose positions and weights are constants of the program.
#include <ATen/ops/_upsample_bicubic2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_bicubic2d_aa_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_ops.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact1d_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_ops.h>
#include <ATen/ops/upsample_bicubic2d_backward_ops.h>
#include <ATen/ops/upsample_bicubic2d_ops.h>
#include <ATen/ops/upsample_bilinear2d_backward_ops.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_linear1d_backward_ops.h>
#include <ATen/ops/upsample_linear1d_ops.h>
#include <ATen/ops/upsample_nearest1d_backward_ops.h>
#include <ATen/ops/upsample_nearest1d_ops.h>
#include <ATen/ops/upsample_nearest2d_backward_ops.h>
#include <ATen/ops/upsample_nearest2d_ops.h>
#include <ATen/ops/upsample_nearest3d_backward_ops.h>
#include <ATen/ops/upsample_nearest3d_ops.h>
#include <ATen/ops/upsample_trilinear3d_backward_ops.h>
#include <ATen/ops/upsample_trilinear3d_ops.h>

#include <cmath>
#include <numbers>

#if __has_include(<ATen/ops/_upsample_lanczos2d_aa_ops.h>)  // not before torch 2.13
#include <ATen/ops/_upsample_lanczos2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_lanczos2d_aa_ops.h>
#define XLA_HAS_LANCZOS
#endif

#include "hlo/dot.h"
#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

enum class Mode { kNearest, kNearestExact, kLinear, kCubic, kLinearAA, kCubicAA, kLanczosAA };
constexpr bool IsAntialiased(Mode mode) { return mode >= Mode::kLinearAA; }

using Scale = std::optional<double>;

// Along one dimension: output o is the sum over taps t of weights[t][o] * x[positions[t][o]].
struct Taps {
  std::vector<std::vector<int64_t>> positions;
  std::vector<std::vector<double>> weights;
};

// The step in the input for one in the output.
template <typename T>
T Step(int64_t in, int64_t out, bool align_corners, Scale scale) {
  if (align_corners) return out > 1 ? static_cast<T>(in - 1) / static_cast<T>(out - 1) : 0;
  return scale && *scale > 0 ? static_cast<T>(1 / *scale)
                             : static_cast<T>(in) / static_cast<T>(out);
}

// Weights of the four neighbours at distance t past the second, with A = -0.75.
template <typename T>
std::array<T, 4> CubicWeights(T t) {
  constexpr T a = -0.75;
  auto near = [](T x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  auto far = [](T x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

// The weight of an element at distance x, in steps of the wider of input and output.
template <typename T>
T FilterOf(Mode mode, T x) {
  x = std::abs(x);
  if (mode == Mode::kLinearAA) return x < 1 ? 1 - x : 0;
  if (mode == Mode::kCubicAA) {
    constexpr T a = -0.5;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
  }
  auto sinc = [](T y) { return y == 0 ? T{1} : std::sin(y) / y; };
  constexpr T pi = std::numbers::pi_v<T>;
  return x < 3 ? sinc(pi * x) * sinc(pi * x / 3) : 0;
}

// Every element under a filter that grows with the step.
template <typename T>
Taps AntialiasedTaps(Mode mode, int64_t in, int64_t out, T step) {
  T reach = mode == Mode::kLinearAA ? 1 : mode == Mode::kCubicAA ? 2 : 3;
  T support = step >= 1 ? reach * step : reach;
  T squeeze = step >= 1 ? 1 / step : 1;
  std::vector<std::vector<T>> weights;
  std::vector<int64_t> first;
  size_t most = 1;
  for (int64_t o = 0; o < out; ++o) {
    T centre = step * (static_cast<T>(o) + T{0.5});
    int64_t low = std::max<int64_t>(static_cast<int64_t>(centre - support + T{0.5}), 0);
    int64_t high = std::min<int64_t>(static_cast<int64_t>(centre + support + T{0.5}), in);
    std::vector<T> w;
    T sum = 0;
    for (int64_t i = low; i < high; ++i) {
      w.push_back(FilterOf<T>(mode, (static_cast<T>(i) - centre + T{0.5}) * squeeze));
      sum += w.back();
    }
    for (T& v : w) v = sum != 0 ? v / sum : v;
    most = std::max(most, w.size());
    first.push_back(low);
    weights.push_back(std::move(w));
  }
  Taps taps{std::vector<std::vector<int64_t>>(most), std::vector<std::vector<double>>(most)};
  for (size_t o = 0; o < first.size(); ++o) {
    for (size_t t = 0; t < most; ++t) {
      auto at = first[o] + static_cast<int64_t>(t);
      taps.positions[t].push_back(std::min(at, in - 1));
      taps.weights[t].push_back(t < weights[o].size() ? static_cast<double>(weights[o][t]) : 0);
    }
  }
  return taps;
}

// T is what PyTorch computes positions and weights in.
template <typename T>
Taps TapsOf(Mode mode, int64_t in, int64_t out, bool align_corners, Scale scale) {
  size_t n = mode == Mode::kLinear ? 2 : mode == Mode::kCubic ? 4 : 1;
  Taps taps{std::vector<std::vector<int64_t>>(n), std::vector<std::vector<double>>(n)};
  T step = Step<T>(in, out, align_corners, scale);
  if (IsAntialiased(mode)) return AntialiasedTaps<T>(mode, in, out, step);
  auto add = [&](size_t tap, int64_t at, T weight) {
    taps.positions[tap].push_back(std::clamp<int64_t>(at, 0, in - 1));
    taps.weights[tap].push_back(static_cast<double>(weight));
  };
  for (int64_t o = 0; o < out; ++o) {
    auto centre = static_cast<T>(o);
    if (mode == Mode::kNearest || mode == Mode::kNearestExact) {
      T at = (mode == Mode::kNearest ? centre : centre + T{0.5}) * step;
      add(0, static_cast<int64_t>(std::floor(at)), 1);
      continue;
    }
    T at = align_corners ? centre * step : (centre + T{0.5}) * step - T{0.5};
    if (mode == Mode::kLinear) at = std::max<T>(at, 0);
    auto first = static_cast<int64_t>(std::floor(at));
    if (mode == Mode::kLinear) {
      first = std::min(first, in - 1);
      T past = std::clamp<T>(at - static_cast<T>(first), 0, 1);
      add(0, first, 1 - past);
      add(1, first + 1, past);
    } else {
      auto w = CubicWeights<T>(at - static_cast<T>(first));
      for (size_t t = 0; t < 4; ++t) add(t, first - 1 + static_cast<int64_t>(t), w[t]);
    }
  }
  return taps;
}

// k where each element is just repeated k times, else 0.
int64_t Repeats(const Taps& taps, int64_t in) {
  const std::vector<int64_t>& at = taps.positions[0];
  auto out = static_cast<int64_t>(at.size());
  if (taps.positions.size() != 1 || out % in != 0) return 0;
  for (int64_t o = 0; o < out; ++o) {
    if (at[At(o)] != o / (out / in)) return 0;
  }
  return out / in;
}

Value ResampleByTaps(Value x, int64_t dim, const Taps& taps) {
  if (int64_t k = Repeats(taps, x.dim(dim))) return RepeatEach(x, dim, k);
  Value sum;
  for (size_t t = 0; t < taps.positions.size(); ++t) {
    Value part = Take(x, dim, Int64s(x.builder(), taps.positions[t]));
    if (taps.positions.size() > 1) {
      Value w = Floats(x.builder(), x.dtype(), taps.weights[t]);
      part = hlo::Mul(part, AlongDim(w, part.dims(), dim));
    }
    sum = sum.valid() ? hlo::Add(sum, part) : part;
  }
  return sum;
}

// The matrix [out, in] of the weights, computed where it is used.
Value MatrixOf(Builder& b, DType t, const Taps& taps, int64_t in) {
  const Dims dims{static_cast<int64_t>(taps.positions[0].size()), in};
  Value column = hlo::Iota(b, {DType::kS64, dims}, 1);
  Value matrix = hlo::Full(b, {t, dims}, 0);
  for (size_t k = 0; k < taps.positions.size(); ++k) {
    Value here = hlo::Eq(AlongDim(Int64s(b, taps.positions[k]), dims, 0), column);
    Value w = AlongDim(Floats(b, t, taps.weights[k]), dims, 0);
    matrix = hlo::Add(matrix, Where(here, w, 0));
  }
  return matrix;
}

// x along dim times a dimension of the matrix.
Value TimesMatrix(Value x, int64_t dim, Value matrix, int64_t contract) {
  // The new dimension comes last.
  Dims back = AllBut(x.rank(), x.rank() - 1);
  back.insert(At(dim), x.rank() - 1);
  return hlo::Transpose(hlo::DotGeneral(x, matrix, {}, {}, {dim}, {contract}), back);
}

Value Resample(Value x, int64_t dim, const Taps& taps) {
  // Many elements each: a product.
  constexpr size_t kFew = 4;
  if (taps.positions.size() > kFew) {
    Value matrix = MatrixOf(x.builder(), x.dtype(), taps, x.dim(dim));
    return TimesMatrix(x, dim, matrix, 1);
  }
  return ResampleByTaps(x, dim, taps);
}

Value ResampleBack(Value g, int64_t dim, int64_t in, const Taps& taps) {
  if (int64_t k = Repeats(taps, in)) {
    Dims split = g.dims();
    split[At(dim)] = in;
    split.insert(At(dim) + 1, k);
    return Sum(hlo::Reshape(g, split), {dim + 1});
  }
  return TimesMatrix(g, dim, MatrixOf(g.builder(), g.dtype(), taps, in), 0);
}

// The arguments after the sizes: align_corners where the schema has it, then a scale for each
// dimension.
struct Options {
  bool align_corners = false;
  std::vector<Scale> scales;
  template <typename... Rest>
  explicit Options(Rest... rest) {
    (Add(rest), ...);
  }
  void Add(bool b) { align_corners = b; }
  void Add(Scale s) { scales.push_back(s); }
};

// Of integer pixels PyTorch sums in fixed point, with the most bits that weights of 16 have room
// for; in float32 such sums are exact. Makes the weights integers and returns the bits.
int ToFixedPoint(Taps& taps) {
  if (taps.positions.size() == 1) return 0;  // elements as they are
  double most = 0;
  // The weights of an element at the border that stands for those beyond become one first.
  for (size_t t = 1; t < taps.positions.size(); ++t) {
    for (size_t o = 0; o < taps.positions[t].size(); ++o) {
      if (taps.positions[t][o] != taps.positions[t - 1][o]) continue;
      taps.weights[t][o] += std::exchange(taps.weights[t - 1][o], 0);
    }
  }
  for (const auto& w : taps.weights) most = std::max(most, *std::max_element(w.begin(), w.end()));
  constexpr int kMost = 22;
  int bits = 0;
  while (bits < kMost && std::floor(std::ldexp(most, bits + 1) + 0.5) < (1 << 15)) ++bits;
  for (auto& tap : taps.weights) {
    for (double& w : tap) w = std::round(std::ldexp(w, bits));
  }
  return bits;
}

// Such a sum as the nearest number that a pixel can be.
Value ToPixels(Value sum, int bits) {
  Value x = hlo::Floor(Plus(Times(sum, std::ldexp(1, -bits)), 0.5));
  return hlo::Min(hlo::Max(x, FullLike(x, 0)), FullLike(x, 255));
}

// x along all spatial dimensions from `in` to `out`; kResample is one of the two above.
// Pixels are rounded after each dimension, the last first.
template <Mode kMode, bool kBack>
Value ResampleAll(Value x, const Dims& in, const Dims& out, const Options& options,
                  bool pixels = false) {
  bool wide = pixels || (x.dtype() == DType::kF64 && kMode > Mode::kNearestExact);
  const size_t n = options.scales.size();
  for (size_t k = 0; k < n; ++k) {
    size_t i = pixels ? n - 1 - k : k;
    auto dim = static_cast<int64_t>(i + 2);
    int64_t from = in[i + 2], to = out[i + 2];
    if (from == to && (kMode == Mode::kLinear || !options.scales[i])) continue;
    Taps taps = wide ? TapsOf<double>(kMode, from, to, options.align_corners, options.scales[i])
                     : TapsOf<float>(kMode, from, to, options.align_corners, options.scales[i]);
    int bits = pixels ? ToFixedPoint(taps) : 0;
    x = kBack ? ResampleBack(x, dim, from, taps) : Resample(x, dim, taps);
    if (pixels) x = ToPixels(x, bits);
  }
  return x;
}

// What PyTorch's CPU kernels take: integers between 0 and 255 are pixels, which have no sums along
// one dimension or three. The antialiased kernels take float16 and bfloat16 on other devices.
template <Mode kMode>
void CheckPixels(DType t, size_t spatial) {
  constexpr const char* kKernel = kMode <= Mode::kNearestExact ? "compute_indices_weights_nearest"
                                  : kMode == Mode::kLinear     ? "compute_indices_weights_linear"
                                  : kMode == Mode::kCubic      ? "compute_indices_weights_cubic"
                                                               : "compute_index_ranges_weights";
  bool pixels = t == DType::kU8 && (kMode <= Mode::kNearestExact || spatial == 2);
  CheckImplemented(IsFloat(t) || pixels, kKernel, t);
}

// Of x's rank, with these spatial sizes, all positive.
Dims Resized(const Arg& x, Span size) {
  XLA_CHECK(x.rank() == static_cast<int64_t>(size.size()) + 2, kInvalidArgument,
            "It is expected input_size equals to ", size.size() + 2, ", but got size ", x.rank());
  Dims out = x.dims();
  for (size_t i = 0; i < size.size(); ++i) {
    XLA_CHECK(size[i] > 0 && out[i + 2] > 0, kInvalidArgument,
              "Input and output sizes should be greater than 0");
    out[i + 2] = size[i];
  }
  return out;
}

template <Mode kMode, typename... Rest>
struct Upsample {
  static Shape Infer(const Arg& x, Span size, Rest...) {
    Shape out = x.shape().with(Resized(x, size));
    CheckPixels<kMode>(x.dtype(), size.size());
    return out;
  }
  static Value Lower(const Shape& out, Value x, Span, Rest... rest) {
    bool pixels = !IsFloat(out.dtype) && kMode > Mode::kNearestExact;
    Value wide = pixels ? hlo::ConvertTo(x, DType::kF32) : Widen(x);
    Value y = ResampleAll<kMode, false>(wide, x.dims(), out.dims, Options(rest...), pixels);
    return hlo::ConvertTo(y, out.dtype);
  }
};

template <typename Op, Mode kMode, typename... Rest>
struct UpsampleBackward {
  static Shape Infer(const Arg& g, Span output_size, Span input_size, Rest...) {
    XLA_CHECK(g.dims().size() == input_size.size() && Resized(g, output_size) == g.dims(),
              kInvalidArgument,
              "Expected grad_output to have the same shape as output; output.size() = ",
              ToString(output_size), " but got ", ToString(g.dims()));
    const char* kernel = Op::name + std::string_view("aten::").size();
    CheckImplemented(IsFloat(g.dtype()), kernel + (*kernel == '_'), g.dtype());
    return g.shape().with(Dims(input_size));
  }
  static Value Lower(const Shape& out, Value g, Span, Span, Rest... rest) {
    Value y = ResampleAll<kMode, true>(Widen(g), out.dims, g.dims(), Options(rest...));
    return hlo::ConvertTo(y, out.dtype);
  }
};

template <typename Forward, typename Backward, Mode kMode, typename... Rest>
void RegisterPair(torch::Library& m) {
  Register<Forward, Upsample<kMode, Rest...>>(m);
  Register<Backward, UpsampleBackward<Backward, kMode, Rest...>>(m);
}

}  // namespace

XLA_OPS(m) {
  namespace op = at::_ops;
  constexpr Mode kNearest = Mode::kNearest, kExact = Mode::kNearestExact, kLinear = Mode::kLinear;
  RegisterPair<op::upsample_nearest1d, op::upsample_nearest1d_backward, kNearest, Scale>(m);
  RegisterPair<op::upsample_nearest2d, op::upsample_nearest2d_backward, kNearest, Scale, Scale>(m);
  RegisterPair<op::upsample_nearest3d, op::upsample_nearest3d_backward, kNearest, Scale, Scale,
               Scale>(m);
  RegisterPair<op::_upsample_nearest_exact1d, op::_upsample_nearest_exact1d_backward, kExact,
               Scale>(m);
  RegisterPair<op::_upsample_nearest_exact2d, op::_upsample_nearest_exact2d_backward, kExact, Scale,
               Scale>(m);
  RegisterPair<op::_upsample_nearest_exact3d, op::_upsample_nearest_exact3d_backward, kExact, Scale,
               Scale, Scale>(m);
  RegisterPair<op::upsample_linear1d, op::upsample_linear1d_backward, kLinear, bool, Scale>(m);
  RegisterPair<op::upsample_bilinear2d, op::upsample_bilinear2d_backward, kLinear, bool, Scale,
               Scale>(m);
  RegisterPair<op::upsample_trilinear3d, op::upsample_trilinear3d_backward, kLinear, bool, Scale,
               Scale, Scale>(m);
  RegisterPair<op::_upsample_bilinear2d_aa, op::_upsample_bilinear2d_aa_backward, Mode::kLinearAA,
               bool, Scale, Scale>(m);
  RegisterPair<op::_upsample_bicubic2d_aa, op::_upsample_bicubic2d_aa_backward, Mode::kCubicAA,
               bool, Scale, Scale>(m);
#ifdef XLA_HAS_LANCZOS
  RegisterPair<op::_upsample_lanczos2d_aa, op::_upsample_lanczos2d_aa_backward, Mode::kLanczosAA,
               bool, Scale, Scale>(m);
#endif
  RegisterPair<op::upsample_bicubic2d, op::upsample_bicubic2d_backward, Mode::kCubic, bool, Scale,
               Scale>(m);
}

}  // namespace torch_xla::ops
