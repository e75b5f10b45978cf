// Linear algebra: decompositions and what is made of them, by LAPACK inside of the program, and
// other algorithms that are PyTorch's CPU kernels there.
#include <ATen/ops/linalg_cross_ops.h>
#include <ATen/ops/linalg_pinv_compositeexplicitautogradnonfunctional_dispatch.h>

#include "aten/host_call.h"
#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

using Args = std::vector<c10::IValue>;

std::vector<Shape> GeqrfShapes(const Args& args) {
  const at::Tensor& a = args[0].toTensor();
  TORCH_CHECK(a.dim() >= 2, "torch.geqrf: input must have at least 2 dimensions.");
  Shape x = ShapeOf(a);
  Dims tau = x.dims;
  tau.resize(tau.size() - 1);
  tau.back() = std::min(a.size(-1), a.size(-2));
  return {x, x.with(tau)};
}

// The default driver: no residuals, no singular values. Others compute residuals by the rank.
std::vector<Shape> LstsqShapes(const Args& args) {
  Shape a = ShapeOf(args[0].toTensor()), b = ShapeOf(args[1].toTensor());
  bool usual = args[3].isNone() || args[3].toStringRef() == "gelsy";
  if (!usual || a.rank() < 2 || a.dtype != b.dtype) return {};
  Dims batch = Span(a.dims).first(a.dims.size() - 2);
  int64_t rows = a.dims[a.dims.size() - 2], columns = a.dims.back();
  Dims solution = batch;
  solution.push_back(columns);
  if (b.rank() == a.rank()) solution.push_back(b.dims.back());
  Dims expected = batch;
  expected.push_back(rows);
  if (b.rank() == a.rank()) expected.push_back(b.dims.back());
  if (b.dims != expected) return {};
  return {
      a.with(solution), {RealPart(a.dtype), {0}}, {DType::kS64, batch}, {RealPart(a.dtype), {0}}};
}

// Of a histogram by number of bins: the histogram and the edges.
std::vector<Shape> HistogramShapes(const Args& args) {
  DType t = ShapeOf(args[0].toTensor()).dtype;
  int64_t bins = args[1].toInt();
  TORCH_CHECK(bins > 0, "torch.histogram(): bins must be > 0, but got ", bins, " for dimension 0");
  return {{t, {bins}}, {t, {bins + 1}}};
}
std::vector<Shape> HistogramByEdgesShapes(const Args& args) {
  Shape self = ShapeOf(args[0].toTensor()), edges = ShapeOf(args[1].toTensor());
  TORCH_CHECK(edges.rank() == 1 && edges.numel() > 0 && edges.dtype == self.dtype,
              "torch.histogram(): bins tensor should have one dimension and the input's dtype, "
              "but got ",
              ToString(edges));
  return {self.with(Dims{edges.numel() - 1}), edges};
}
std::vector<Shape> HistogramddEdgesShapes(const Args& args) {
  DType t = ShapeOf(args[0].toTensor()).dtype;
  std::vector<Shape> edges;
  for (int64_t bins : args[1].toIntVector()) edges.push_back({t, {bins + 1}});
  return edges;
}
std::vector<Shape> HistogramddShapes(const Args& args) {
  std::vector<int64_t> bins = args[1].toIntVector();
  return {ShapeOf(args[0].toTensor()).with(Dims(Span(bins)))};
}
std::vector<Shape> HistogramddByEdgesShapes(const Args& args) {
  Dims dims;
  for (const at::Tensor& t : args[1].toTensorVector()) dims.push_back(t.numel() - 1);
  return {ShapeOf(args[0].toTensor()).with(dims)};
}

struct Cross {
  static Shape Infer(const Arg& a, const Arg& b, int64_t dim) {
    TORCH_CHECK(a.rank() == b.rank(),
                "linalg.cross: inputs must have the same number of dimensions.");
    int64_t d = WrapDim(dim, a.rank());
    TORCH_CHECK(a.rank() != 0 && a.dim(d) == 3 && b.dim(d) == 3, "linalg.cross: inputs dimension ",
                dim, " must have length 3. Got ", a.rank() == 0 ? 1 : a.dim(d), " and ",
                b.rank() == 0 ? 1 : b.dim(d));
    TORCH_CHECK(a.dtype() == b.dtype(), "expected scalar type ", TorchName(a.dtype()),
                " but found ", TorchName(b.dtype()));
    return {a.dtype(), Broadcast({a, b})};
  }
  static Value Lower(const Shape& out, Value a, Value b, int64_t dim) {
    dim = WrapDim(dim, out.rank());
    a = Fit(a, out);
    b = Fit(b, out);
    // x turned so that element i + k stands where i was.
    auto turn = [&](Value x, int64_t k) {
      return hlo::Concatenate({hlo::SliceDim(x, dim, k, 3), hlo::SliceDim(x, dim, 0, k)}, dim);
    };
    return hlo::Sub(hlo::Mul(turn(a, 1), turn(b, 2)), hlo::Mul(turn(a, 2), turn(b, 1)));
  }
};

}  // namespace

XLA_OPS(m) {
  for (const char* name : {"_cholesky_solve_helper",
                           "_linalg_det",
                           "_linalg_eigh",
                           "_linalg_eigvals",
                           "_linalg_slogdet",
                           "_linalg_solve_ex",
                           "_linalg_svd",
                           "cholesky",
                           "cholesky_inverse",
                           "linalg_cholesky_ex",
                           "linalg_eig",
                           "linalg_householder_product",
                           "linalg_inv_ex",
                           "linalg_ldl_factor_ex",
                           "linalg_ldl_solve",
                           "linalg_lu",
                           "linalg_lu_factor_ex",
                           "linalg_lu_solve",
                           "linalg_matrix_exp",
                           "linalg_qr",
                           "linalg_solve_triangular",
                           "lu_unpack",
                           "ormqr",
                           "triangular_solve",
                           "segment_reduce",
                           "_segment_reduce_backward"}) {
    RegisterHostCall(m, name);
  }
  RegisterHostCall(m, "geqrf", GeqrfShapes);
  RegisterHostCall(m, "linalg_lstsq", LstsqShapes);
  RegisterHostCall(m, "histogram.bin_ct", HistogramShapes);
  RegisterHostCall(m, "histogram.bins_tensor", HistogramByEdgesShapes);
  RegisterHostCall(m, "_histogramdd_bin_edges", HistogramddEdgesShapes);
  RegisterHostCall(m, "_histogramdd_from_bin_cts", HistogramddShapes);
  RegisterHostCall(m, "_histogramdd_from_bin_tensors", HistogramddByEdgesShapes);
  Register<at::_ops::linalg_cross, Cross>(m);
  // Torch's own composite, which it does not give to the XLA key.
  m.impl("linalg_pinv.atol_rtol_tensor",
         TORCH_FN(at::compositeexplicitautogradnonfunctional::linalg_pinv));
}

}  // namespace torch_xla::ops
