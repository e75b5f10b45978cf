// grid_sample in 2 and 3 dimensions: each output element is a weighted sum of input elements around
// a position that the grid names, along every dimension 1 (nearest), 2 (linear) or 4 (cubic) taps.
#include <ATen/ops/grid_sampler_2d_backward_ops.h>
#include <ATen/ops/grid_sampler_2d_ops.h>
#include <ATen/ops/grid_sampler_3d_backward_ops.h>
#include <ATen/ops/grid_sampler_3d_ops.h>

#include "ops/reduce.h"
#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

enum class Mode : int64_t { kLinear = 0, kNearest = 1, kCubic = 2 };
enum class Outside : int64_t { kZeros = 0, kBorder = 1, kReflect = 2 };

// A position and its derivative with respect to what it was made of.
struct Position {
  Value x, slope;
};

Position Clipped(Position p, int64_t size) {
  Value low = FullLike(p.x, 0), high = FullLike(p.x, static_cast<double>(size - 1));
  Value inside = hlo::And(hlo::Gt(p.x, low), hlo::Lt(p.x, high));
  Value clipped = hlo::Min(high, hlo::Max(p.x, low));
  // A position that is no number reads the first element.
  return {Where(IsNan(p.x), 0, clipped), Where(inside, p.slope, 0)};
}

// Mirrored at the borders: of the elements' centres with align_corners, else of the elements.
Position Reflected(Position p, int64_t size, bool align_corners) {
  double low = align_corners ? 0 : -0.5;
  double span = static_cast<double>(align_corners ? size - 1 : size);
  if (span == 0) return {FullLike(p.x, 0), FullLike(p.x, 0)};
  Value x = Plus(p.x, -low);
  Value sign = Where(LtZero(x), -1, FullLike(x, 1));
  x = hlo::Abs(x);
  Value extra = hlo::Rem(x, FullLike(x, span));
  Value flips = hlo::Floor(DivideBy(x, static_cast<int64_t>(span)));
  Value even = IsZero(hlo::Rem(flips, FullLike(x, 2)));
  Value there = Plus(extra, low), back = RSub(span + low, extra);
  return {hlo::Select(even, there, back),
          hlo::Mul(p.slope, hlo::Mul(sign, Where(even, FullLike(x, 1), -1)))};
}

// One element along one dimension.
struct Tap {
  Value at;      // int64, within the input
  Value inside;  // bool: whether it counts
  Value weight, slope;
};

// Weight and slope of a tap at distance x in [0, 1] or [1, 2], with A = -0.75.
std::pair<Value, Value> CubicNear(Value x) {
  constexpr double a = -0.75;
  return {Plus(hlo::Mul(hlo::Mul(Plus(Times(x, a + 2), -(a + 3)), x), x), 1),
          hlo::Mul(Plus(Times(x, 3 * (a + 2)), -2 * (a + 3)), x)};
}
std::pair<Value, Value> CubicFar(Value x) {
  constexpr double a = -0.75;
  Value y = Plus(hlo::Mul(Plus(hlo::Mul(Plus(Times(x, a), -5 * a), x), 8 * a), x), -4 * a);
  return {y, Plus(hlo::Mul(Plus(Times(x, 3 * a), -10 * a), x), 8 * a)};
}

struct Sampler {
  Mode mode;
  Outside outside;
  bool align_corners;

  Position Pad(Position p, int64_t size) const {
    if (outside == Outside::kBorder) return Clipped(p, size);
    if (outside == Outside::kReflect) return Clipped(Reflected(p, size, align_corners), size);
    return p;
  }

  Tap At(Value x, Value weight, Value slope, int64_t size) const {
    Value last = FullLike(x, static_cast<double>(size - 1));
    Value inside = hlo::And(hlo::Ge(x, FullLike(x, 0)), hlo::Le(x, last));
    Value at = hlo::ConvertTo(Where(inside, x, 0), DType::kS64);
    return {at, inside, weight, slope};
  }

  // The taps for coordinates in [-1, 1]; slopes are with respect to these.
  std::vector<Tap> Along(Value coordinate, int64_t size) const {
    auto n = static_cast<double>(size);
    Value x = Plus(coordinate, 1);
    Value slope = FullLike(x, (align_corners ? n - 1 : n) / 2);
    x = align_corners ? Times(Times(x, 0.5), n - 1) : Times(Plus(Times(x, n), -1), 0.5);
    if (mode == Mode::kCubic) return Cubic({x, slope}, size);
    Position p = Pad({x, slope}, size);
    if (mode == Mode::kNearest) {
      return {At(hlo::RoundNearestEven(p.x), FullLike(x, 1), FullLike(x, 0), size)};
    }
    Value floor = hlo::Floor(p.x), past = hlo::Sub(p.x, floor);
    return {At(floor, RSub(1, past), hlo::Neg(p.slope), size),
            At(Plus(floor, 1), past, p.slope, size)};
  }

 private:
  // Each tap is brought inside on its own.
  std::vector<Tap> Cubic(Position p, int64_t size) const {
    Value floor = hlo::Floor(p.x), t = hlo::Sub(p.x, floor);
    std::vector<Tap> taps;
    for (int64_t i = 0; i < 4; ++i) {
      double offset = static_cast<double>(i) - 1;
      bool after = i > 1;
      Value distance = after ? RSub(offset, t) : Plus(t, -offset);
      auto [w, d] = i == 0 || i == 3 ? CubicFar(distance) : CubicNear(distance);
      if (after) d = hlo::Neg(d);
      Position tap = Pad({Plus(floor, offset), p.slope}, size);
      taps.push_back(At(tap.x, w, hlo::Mul(d, p.slope), size));
    }
    return taps;
  }
};

// All that both directions need: for every combination of taps the element's number within its
// plane, its weight, and the weight's slopes with respect to the grid's coordinates.
struct Corners {
  struct Corner {
    Value at, weight;  // [n, p]
    std::vector<Value> slopes;
  };
  std::vector<Corner> all;
  int64_t n, c, plane, points;

  // x[n, c, spatial...], grid[n, out..., rank]; the grid's last dimension counts from the
  // innermost.
  Corners(Value x, Value grid, const Sampler& sampler) {
    int64_t rank = x.rank() - 2;
    n = x.dim(0);
    c = x.dim(1);
    plane = Product(Span(x.dims()).subspan(2));
    points = Product(Span(grid.dims()).subspan(1, At(rank)));
    grid = hlo::Reshape(grid, {n, points, rank});
    std::vector<std::vector<Tap>> taps;
    for (int64_t d = 0; d < rank; ++d) {
      Value along = hlo::SliceDim(grid, 2, rank - 1 - d, rank - d);
      taps.push_back(sampler.Along(hlo::Reshape(along, {n, points}), x.dim(d + 2)));
    }
    const int64_t per_dim = static_cast<int64_t>(taps[0].size());
    int64_t count = 1;
    for (int64_t d = 0; d < rank; ++d) count *= per_dim;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<const Tap*> chosen;
      int64_t rest = i;
      for (int64_t d = 0; d < rank; ++d, rest /= per_dim) {
        chosen.push_back(&taps[At(d)][At(rest % per_dim)]);
      }
      all.push_back(Combined(chosen, x));
    }
  }

  // The elements of a corner: x as [n, plane, c] -> [n, p, c].
  Value Elements(Value rows, const Corner& corner) const {
    return hlo::Gather(rows, hlo::Reshape(corner.at, {n, points, 1}),
                       {.offset_dims = {2},
                        .collapsed_slice_dims = {1},
                        .operand_batching_dims = {0},
                        .start_indices_batching_dims = {0},
                        .start_index_map = {1},
                        .index_vector_dim = 2},
                       {1, 1, c});
  }
  // [n, c, ...] -> [n, ..., c], flat, and back.
  Value Rows(Value x, int64_t size) const {
    return hlo::Transpose(hlo::Reshape(x, {n, c, size}), {0, 2, 1});
  }
  Value Along(Value v) const { return hlo::BroadcastInDim(v, {n, points, c}, {0, 1}); }

 private:
  static Corner Combined(const std::vector<const Tap*>& taps, Value x) {
    Corner corner;
    Value inside;
    for (size_t d = 0; d < taps.size(); ++d) {
      const Tap& t = *taps[d];
      auto size = static_cast<double>(x.dims()[d + 2]);
      corner.at = d == 0 ? t.at : hlo::Add(Times(corner.at, size), t.at);
      corner.weight = d == 0 ? t.weight : hlo::Mul(corner.weight, t.weight);
      inside = d == 0 ? t.inside : hlo::And(inside, t.inside);
    }
    for (size_t d = 0; d < taps.size(); ++d) {
      Value slope = taps[d]->slope;
      for (size_t e = 0; e < taps.size(); ++e) {
        if (e != d) slope = hlo::Mul(slope, taps[e]->weight);
      }
      corner.slopes.push_back(Where(inside, slope, 0));
    }
    corner.weight = Where(inside, corner.weight, 0);
    return corner;
  }
};

Dims OutDims(const Arg& x, const Arg& grid, int64_t rank, int64_t mode, int64_t outside) {
  XLA_CHECK(x.rank() == rank + 2 && grid.rank() == rank + 2 && x.dtype() == grid.dtype() &&
                x.dim(0) == grid.dim(0) && grid.dim(-1) == rank && mode >= 0 && outside >= 0 &&
                mode <= (rank == 2 ? 2 : 1) && outside <= 2 && IsFloat(x.dtype()),
            kInvalidArgument, "grid_sampler(): unexpected input ", ToString(x.dims()), " and grid ",
            ToString(grid.dims()));
  for (int64_t d = 2; d < x.rank(); ++d) {
    XLA_CHECK(x.dim(d) > 0, kInvalidArgument,
              "grid_sampler(): expected input to have non-empty spatial dimensions");
  }
  Dims out{x.dim(0), x.dim(1)};
  for (int64_t d = 1; d <= rank; ++d) out.push_back(grid.dim(d));
  return out;
}

template <int64_t kRank>
struct GridSampler {
  static Shape Infer(const Arg& x, const Arg& grid, int64_t mode, int64_t outside, bool) {
    return x.shape().with(OutDims(x, grid, kRank, mode, outside));
  }
  static Value Lower(const Shape& out, Value x, Value grid, int64_t mode, int64_t outside,
                     bool align_corners) {
    if (out.numel() == 0) return hlo::Full(x.builder(), out, 0);
    x = Widen(x);
    Corners corners(x, Widen(grid),
                    {static_cast<Mode>(mode), static_cast<Outside>(outside), align_corners});
    Value rows = corners.Rows(x, corners.plane), sum;
    for (const auto& corner : corners.all) {
      Value part = hlo::Mul(corners.Elements(rows, corner), corners.Along(corner.weight));
      sum = sum.valid() ? hlo::Add(sum, part) : part;
    }
    return hlo::ConvertTo(hlo::Reshape(hlo::Transpose(sum, {0, 2, 1}), out.dims), out.dtype);
  }
};

template <int64_t kRank>
struct GridSamplerBackward {
  static std::vector<Shape> Infer(const Arg& g, const Arg& x, const Arg& grid, int64_t mode,
                                  int64_t outside, bool, std::array<bool, 2> mask) {
    XLA_CHECK(g.dims() == OutDims(x, grid, kRank, mode, outside), kInvalidArgument,
              "grid_sampler_backward: unexpected gradient ", ToString(g.dims()));
    std::vector<Shape> shapes;
    if (mask[0]) shapes.push_back(x.shape());
    if (mask[1]) shapes.push_back(grid.shape());
    return shapes;
  }
  static std::vector<Value> Lower(const std::vector<Shape>& out, Value g, Value x, Value grid,
                                  int64_t mode, int64_t outside, bool align_corners,
                                  std::array<bool, 2> mask) {
    std::vector<Value> grads;
    if (g.shape().numel() == 0) {
      for (const Shape& s : out) grads.push_back(hlo::Full(g.builder(), s, 0));
      return grads;
    }
    x = Widen(x);
    Corners corners(x, Widen(grid),
                    {static_cast<Mode>(mode), static_cast<Outside>(outside), align_corners});
    g = corners.Rows(Widen(g), corners.points);
    if (mask[0]) grads.push_back(hlo::ConvertTo(OfInput(corners, g, x), out[0].dtype));
    if (mask[1]) {
      Value dgrid = hlo::Reshape(OfGrid(corners, g, x), grid.dims());
      grads.push_back(hlo::ConvertTo(dgrid, out.back().dtype));
    }
    return grads;
  }

 private:
  static Value OfInput(const Corners& k, Value g, Value x) {
    Value sum = hlo::Full(x.builder(), {x.dtype(), {k.n * k.plane, k.c}}, 0);
    std::vector<Value> at, rows;
    for (const auto& corner : k.all) {
      Value plane = Times(IotaLike(corner.at, 0), static_cast<double>(k.plane));
      at.push_back(hlo::Reshape(hlo::Add(corner.at, plane), {k.n * k.points}));
      rows.push_back(hlo::Reshape(hlo::Mul(g, k.Along(corner.weight)), {k.n * k.points, k.c}));
    }
    sum = ScatterDim(sum, 0, hlo::Concatenate(at, 0), hlo::Concatenate(rows, 0),
                     Combine(hlo::Reducer::kSum));
    sum = hlo::Transpose(hlo::Reshape(sum, {k.n, k.plane, k.c}), {0, 2, 1});
    return hlo::Reshape(sum, x.dims());
  }
  static Value OfGrid(const Corners& k, Value g, Value x) {
    Value rows = k.Rows(x, k.plane);
    std::vector<Value> sums(At(kRank));
    for (const auto& corner : k.all) {
      Value dot = Sum(hlo::Mul(g, k.Elements(rows, corner)), {2});
      for (size_t d = 0; d < sums.size(); ++d) {
        Value part = hlo::Mul(dot, corner.slopes[d]);
        sums[d] = sums[d].valid() ? hlo::Add(sums[d], part) : part;
      }
    }
    std::vector<Value> last_first;
    for (size_t d = sums.size(); d-- > 0;) {
      last_first.push_back(hlo::Reshape(sums[d], {k.n, k.points, 1}));
    }
    return hlo::Concatenate(last_first, 2);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::grid_sampler_2d, GridSampler<2>>(m);
  Register<at::_ops::grid_sampler_2d_backward, GridSamplerBackward<2>>(m);
  Register<at::_ops::grid_sampler_3d, GridSampler<3>>(m);
  Register<at::_ops::grid_sampler_3d_backward, GridSamplerBackward<3>>(m);
}

}  // namespace torch_xla::ops
