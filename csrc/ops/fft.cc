// Fourier transforms; torch.fft, stft and istft are torch's composites over these. The sample
// frequencies and the window whose composites need kernels of a device.
#include <ATen/native/Resize.h>
#include <ATen/ops/_fft_c2c_ops.h>
#include <ATen/ops/_fft_c2r_ops.h>
#include <ATen/ops/_fft_r2c_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/i0.h>
#include <ATen/ops/ones.h>

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
    return hlo::ConvertTo(ScaleBy(Complex(Widen(self), all, forward), scale), out.dtype);
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
    Value x = Widen(self);
    if (onesided) {
      int64_t last = all.back();
      all.erase(all.size() - 1);
      x = FftDim(x, last, FftType::kRfft, self.dim(last));
    }
    x = hlo::ConvertTo(x, Wide(out.dtype));
    return hlo::ConvertTo(ScaleBy(Complex(x, all, true), scale), out.dtype);
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
    Value x = Complex(Widen(self), all, false);
    x = hlo::SliceDim(x, last, 0, last_dim_size / 2 + 1);
    x = ScaleBy(FftDim(x, last, FftType::kIrfft, last_dim_size), ScaleOf(normalization, n) * n);
    return hlo::ConvertTo(x, out.dtype);
  }
};

using OptDtype = std::optional<at::ScalarType>;
using OptLayout = std::optional<at::Layout>;
using OptDevice = std::optional<at::Device>;
using OptBool = std::optional<bool>;

at::ScalarType DefaultType() { return at::typeMetaToScalarType(at::get_default_dtype()); }

at::TensorOptions OptionsOf(OptDtype dtype, OptLayout layout, OptDevice device, OptBool pinned) {
  return at::TensorOptions().dtype(dtype).layout(layout).device(device).pinned_memory(pinned);
}

// PyTorch's formulas begin with a range.
void CheckRange(at::ScalarType type) {
  CheckImplemented(!at::isComplexType(type), "arange_cpu", ToDType(type));
}

// 0, 1, ..., then the negative ones up to -1, over n d. Torch's composite writes the second part
// into a slice of no elements, which it has resized.
at::Tensor FftFreq(int64_t n, double d, OptDtype dtype, OptLayout layout, OptDevice device,
                   OptBool pinned) {
  TORCH_CHECK(n >= 0, "Trying to create tensor with negative dimension ", n, ": [", n, "]");
  at::ScalarType type = dtype.value_or(DefaultType());
  TORCH_CHECK(at::isFloatingType(type) || at::isComplexType(type),
              "fftfreq requires a floating point or complex dtype");
  CheckRange(type);
  at::TensorOptions options = OptionsOf(type, layout, device, pinned);
  at::Tensor k = at::cat({at::arange((n + 1) / 2, options), at::arange(-(n / 2), 0, options)});
  return k.mul_(1.0 / (static_cast<double>(n) * d));
}

at::Tensor& FftFreqOut(int64_t n, double d, at::Tensor& out) {
  at::Tensor made = FftFreq(n, d, out.scalar_type(), {}, out.device(), {});
  at::native::resize_output(out, made.sizes());
  return out.copy_(made);
}

// i0(beta sqrt(1 - r^2)) / i0(beta), r from -1 to 1. Torch's composite runs a kernel of its own.
at::Tensor KaiserWindowBeta(int64_t length, bool periodic, double beta, OptDtype dtype,
                            OptLayout layout, OptDevice device, OptBool pinned) {
  at::ScalarType type = dtype.value_or(DefaultType());
  at::TensorOptions options = OptionsOf(type, layout, device, pinned);
  TORCH_CHECK(at::isFloatingType(type) || at::isComplexType(type),
              "kaiser_window expects floating point dtypes, got: ", options);
  TORCH_CHECK(length >= 0,
              "kaiser_window requires non-negative window_length, got window_length=", length);
  if (length <= 1) return at::ones({length}, options);
  CheckRange(type);
  if (periodic) ++length;
  at::TensorOptions wide = options.dtype(type == at::kDouble ? at::kDouble : at::kFloat);
  double middle = static_cast<double>(length - 1) / 2;
  at::Tensor r = at::arange(length, wide).sub(middle).div(middle);
  at::Tensor window = at::i0(r.square().neg().add(1).sqrt().mul(beta));
  window = window.div(at::i0(at::full({}, beta, wide))).to(type);
  return periodic ? window.narrow(0, 0, length - 1) : window;
}

at::Tensor KaiserWindowPeriodic(int64_t length, bool periodic, OptDtype dtype, OptLayout layout,
                                OptDevice device, OptBool pinned) {
  return KaiserWindowBeta(length, periodic, 12.0, dtype, layout, device, pinned);
}

at::Tensor KaiserWindow(int64_t length, OptDtype dtype, OptLayout layout, OptDevice device,
                        OptBool pinned) {
  return KaiserWindowPeriodic(length, true, dtype, layout, device, pinned);
}

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::_fft_c2c, FftC2c>(m);
  Register<at::_ops::_fft_r2c, FftR2c>(m);
  Register<at::_ops::_fft_c2r, FftC2r>(m);
  m.impl("fft_fftfreq", TORCH_FN(FftFreq));
  m.impl("fft_fftfreq.out", TORCH_FN(FftFreqOut));
  m.impl("kaiser_window", TORCH_FN(KaiserWindow));
  m.impl("kaiser_window.periodic", TORCH_FN(KaiserWindowPeriodic));
  m.impl("kaiser_window.beta", TORCH_FN(KaiserWindowBeta));
}

}  // namespace torch_xla::ops
