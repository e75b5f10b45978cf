// Fourier transforms; torch.fft, stft and istft are torch's composites over these.
#include <ATen/ops/_fft_c2c_ops.h>
#include <ATen/ops/_fft_c2r_ops.h>
#include <ATen/ops/_fft_r2c_ops.h>

#include "hlo/control.h"
#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

using hlo::FftType;

// One-dimensional, along dim; n is the length of the real signal or of the complex one.
Value FftDim(Value x, int64_t dim, FftType type, int64_t n) {
  Dims perm = AllBut(x.rank(), dim);
  perm.push_back(dim);
  Dims back = Range(x.rank() - 1);
  back.insert(At(dim), x.rank() - 1);
  return hlo::Transpose(hlo::Fft(hlo::Transpose(x, perm), type, {n}), back);
}

// Torch's normalisations of a transform over n elements, relative to a sum.
double ScaleOf(int64_t normalization, double n) {
  return normalization == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(n) : 1 / n;
}

Value ScaleBy(Value x, double factor) {
  if (factor == 1) return x;
  Value c = hlo::ConvertTo(hlo::Full(x.builder(), x.shape().with(RealPart(x.dtype())), factor),
                           x.dtype());
  return hlo::Mul(x, c);
}

// The dimensions in order, wrapped.
Dims Wrapped(Span dims, int64_t rank) {
  Dims out;
  for (int64_t d : dims) out.push_back(WrapDim(d, rank));
  return out;
}

double Count(const Dims& of, const Dims& dims) {
  double n = 1;
  for (int64_t d : dims) n *= static_cast<double>(of[At(d)]);
  return n;
}

Value Complex(Value x, const Dims& dims, bool forward) {
  for (int64_t d : dims) x = FftDim(x, d, forward ? FftType::kFft : FftType::kIfft, x.dim(d));
  return x;
}

struct FftC2c {
  static Shape Infer(const Arg& self, Span dims, int64_t, bool) {
    XLA_CHECK(IsComplex(self.dtype()), kInvalidArgument, "_fft_c2c: expected a complex tensor");
    for (int64_t d : dims) WrapDim(d, self.rank());
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, Span dims, int64_t normalization, bool forward) {
    if (out.numel() == 0) return self;
    Dims all = Wrapped(dims, out.rank());
    double n = Count(out.dims, all);
    // The inverse of StableHLO divides by n.
    double scale = ScaleOf(normalization, n) * (forward ? 1 : n);
    return ScaleBy(Complex(self, all, forward), scale);
  }
};

struct FftR2c {
  static Shape Infer(const Arg& self, Span dims, int64_t, bool onesided) {
    XLA_CHECK(IsFloat(self.dtype()), kInvalidArgument, "_fft_r2c: expected a real tensor");
    Dims out = self.dims();
    for (int64_t d : dims) WrapDim(d, self.rank());
    if (onesided) {
      int64_t& last = out[At(WrapDim(dims.back(), self.rank()))];
      last = last / 2 + 1;
    }
    return {ComplexOf(self.dtype()), out};
  }
  static Value Lower(const Shape& out, Value self, Span dims, int64_t normalization,
                     bool onesided) {
    Dims all = Wrapped(dims, out.rank());
    double scale = ScaleOf(normalization, Count(self.dims(), all));
    if (self.shape().numel() == 0) return hlo::Full(self.builder(), out, 0);
    if (!onesided) {
      return ScaleBy(Complex(hlo::ConvertTo(self, out.dtype), all, true), scale);
    }
    int64_t last = all.back();
    all.erase(all.size() - 1);
    Value x = FftDim(self, last, FftType::kRfft, self.dim(last));
    return ScaleBy(Complex(x, all, true), scale);
  }
};

struct FftC2r {
  static Shape Infer(const Arg& self, Span dims, int64_t, int64_t last_dim_size) {
    XLA_CHECK(IsComplex(self.dtype()), kInvalidArgument, "_fft_c2r: expected a complex tensor");
    for (int64_t d : dims) WrapDim(d, self.rank());
    Dims out = self.dims();
    out[At(WrapDim(dims.back(), self.rank()))] = last_dim_size;
    return {RealPart(self.dtype()), out};
  }
  static Value Lower(const Shape& out, Value self, Span dims, int64_t normalization,
                     int64_t last_dim_size) {
    if (out.numel() == 0) return hlo::Full(self.builder(), out, 0);
    Dims all = Wrapped(dims, out.rank());
    double n = Count(out.dims, all);
    int64_t last = all.back();
    all.erase(all.size() - 1);
    Value x = Complex(self, all, false);
    x = hlo::SliceDim(x, last, 0, last_dim_size / 2 + 1);
    return ScaleBy(FftDim(x, last, FftType::kIrfft, last_dim_size), ScaleOf(normalization, n) * n);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::_fft_c2c, FftC2c>(m);
  Register<at::_ops::_fft_r2c, FftR2c>(m);
  Register<at::_ops::_fft_c2r, FftC2r>(m);
}

}  // namespace torch_xla::ops
