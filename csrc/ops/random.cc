// Random fills. In-place kernels by hand: they draw the node's two extra inputs (seed and offset)
// from a generator. Parameters of the distributions are inputs too.
#include "ops/random.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/topk.h>

#include <cmath>
#include <limits>

namespace torch_xla::ops {
namespace {

void CheckFloating(const char* kernel, const at::Tensor& self) {
  CheckImplemented(self.is_floating_point(), kernel, ToDType(self.scalar_type()));
}

// ---- Distributions on [n].

Value Uniform(const RandomBits& bits, Inputs in, const Shape& out) {
  if (IsComplex(out.dtype)) {  // each part by itself
    int64_t n = out.numel();
    Value parts = Uniform(bits, in, {RealPart(out.dtype), {2 * n}});
    return hlo::Complex(hlo::SliceDim(parts, 0, 0, n), hlo::SliceDim(parts, 0, n, 2 * n));
  }
  DType t = Wide(out.dtype);
  Value u = hlo::ConvertTo(bits.Uniform(out.dtype), t);
  Value from = FitTo(in[0], u), to = FitTo(in[1], u);
  Value x = hlo::ConvertTo(hlo::Add(hlo::Mul(u, hlo::Sub(to, from)), from), out.dtype);
  // Rounding may reach the end.
  to = FitTo(in[1], x);
  return hlo::Select(hlo::Ge(x, to), FitTo(in[0], x), x);
}

Value Normal(const RandomBits& bits, Inputs in, const Shape& out) {
  if (IsComplex(out.dtype)) {  // half of the variance in each part, each with the mean
    Value z = bits.Normal(Wide(RealPart(out.dtype)));
    int64_t n = out.numel();
    z = Times(hlo::Mul(z, FitTo(in[1], z)), std::sqrt(0.5));
    Value re = hlo::SliceDim(z, 0, 0, n);
    Value mean = FitTo(in[0], re), im = hlo::SliceDim(z, 0, n, 2 * n);
    return hlo::Complex(hlo::Add(re, mean), hlo::Add(im, mean));
  }
  Value z = bits.Normal(Wide(out.dtype));
  return hlo::Add(hlo::Mul(z, FitTo(in[1], z)), FitTo(in[0], z));
}

Value LogNormal(const RandomBits& bits, Inputs in, const Shape& out) {
  return hlo::Exp(Normal(bits, in, out));
}

Value Exponential(const RandomBits& bits, Inputs in, const Shape& out) {
  Value e = hlo::Neg(hlo::Log(bits.OpenUniform(Wide(out.dtype))));
  return hlo::Div(e, FitTo(in[0], e));
}

Value Cauchy(const RandomBits& bits, Inputs in, const Shape& out) {
  Value u = bits.OpenUniform(Wide(out.dtype));
  Value t = hlo::Tan(Times(Plus(u, -0.5), M_PI));
  return hlo::Add(hlo::Mul(t, FitTo(in[1], t)), FitTo(in[0], t));
}

// How many trials until the first success.
Value Geometric(const RandomBits& bits, Inputs in, const Shape& out) {
  Value u = bits.OpenUniform(out.dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  return hlo::Ceil(hlo::Div(hlo::Log(u), hlo::Log1p(hlo::Neg(FitTo(in[0], u)))));
}

Value Bernoulli(const RandomBits& bits, Inputs in, const Shape&) {
  Value p = in[0];
  Value u = bits.Uniform(p.rank() != 0 && p.dtype() == DType::kF64 ? DType::kF64 : DType::kF32);
  if (p.rank() != 0) p = hlo::Reshape(p, u.dims());
  return hlo::Lt(u, FitTo(p, u));
}

// in[0] + an integer below in[1], at most 2^32, by the high word of a product.
Value Below32(const RandomBits& bits, Inputs in, const Shape&) {
  Value x = hlo::ConvertTo(bits.low(), DType::kU64);
  x = hlo::Mul(x, FitTo(in[1], x));
  x = hlo::ShiftRightLogical(x, hlo::FullInt(x.builder(), x.shape(), 32));
  x = hlo::ConvertTo(x, DType::kS64);
  return hlo::Add(x, FitTo(in[0], x));
}
// The same for ranges up to 2^64 - 1.
Value Below64(const RandomBits& bits, Inputs in, const Shape&) {
  Value x = bits.all();
  x = hlo::ConvertTo(hlo::Rem(x, FitTo(in[1], x)), DType::kS64);
  return hlo::Add(x, FitTo(in[0], x));
}
Value Any64(const RandomBits& bits, Inputs, const Shape&) {
  return hlo::ConvertTo(bits.all(), DType::kS64);
}

// Sorted by random keys.
Value Permutation(const RandomBits& bits, Inputs, const Shape&) {
  Value keys = bits.all();
  const Value operands[] = {keys, IotaLike(keys, 0)};
  return hlo::Sort(operands, 0, /*is_stable=*/true, [](Builder&, std::span<const Value> v) {
    return std::vector<Value>{hlo::Lt(v[0], v[1])};
  })[1];
}

// ---- Kernels.

at::Tensor& UniformInPlace(at::Tensor& self, double from, double to, Generator generator) {
  DType part = RealPart(ToDType(self.scalar_type()));
  CheckImplemented(IsFloat(part), "check_uniform_bounds", ToDType(self.scalar_type()));
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
              " > to=", to);
  TORCH_CHECK(to - from <= hlo::MaxFinite(part), "uniform_ expects to-from <= std::numeric_limits<",
              c10::toString(self.scalar_type()), ">::max(), but found to=", to, " and from=", from,
              " which result in to-from to exceed the limit");
  return Fill<Uniform>("aten::uniform_", self, generator, {Input(from), Input(to)});
}

void CheckStd(double std) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
}

at::Tensor& NormalInPlace(at::Tensor& self, double mean, double std, Generator generator) {
  CheckStd(std);
  CheckImplemented(self.is_floating_point() || self.is_complex(), "normal_kernel_cpu",
                   ToDType(self.scalar_type()));
  return Fill<Normal>("aten::normal_", self, generator, {Input(mean), Input(std)});
}

// mean + std * a fill of the given shape, either a tensor or a number.
template <typename Mean, typename Std>
at::Tensor NormalOf(const Mean& mean, const Std& std, const at::Tensor& like, at::IntArrayRef sizes,
                    const Generator& generator) {
  at::Tensor z = at::empty(sizes, like.options());
  NormalInPlace(z, 0, 1, generator);
  return z.mul_(std).add_(mean);
}
at::Tensor NormalTensorFloat(const at::Tensor& mean, double std, Generator generator) {
  CheckStd(std);
  return NormalOf(mean, std, mean, mean.sizes(), generator);
}
at::Tensor NormalFloatTensor(double mean, const at::Tensor& std, Generator generator) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  return NormalOf(mean, std, std, std.sizes(), generator);
}
at::Tensor NormalTensorTensor(const at::Tensor& mean, const at::Tensor& std, Generator generator) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  Dims dims = Broadcast(ShapeOf(mean).dims, ShapeOf(std).dims);
  return NormalOf(mean, std, mean, {dims.data(), dims.size()}, generator);
}

at::Tensor& LogNormalInPlace(at::Tensor& self, double mean, double std, Generator generator) {
  TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
  CheckFloating("log_normal_cpu", self);
  return Fill<LogNormal>("aten::log_normal_", self, generator, {Input(mean), Input(std)});
}

at::Tensor& ExponentialInPlace(at::Tensor& self, double lambda, Generator generator) {
  TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  TORCH_CHECK(self.is_floating_point(),
              "Exponential distribution is a continuous probability distribution. dtype must be a "
              "floating point but you specified ",
              self.scalar_type());
  return Fill<Exponential>("aten::exponential_", self, generator, {Input(lambda)});
}

at::Tensor& CauchyInPlace(at::Tensor& self, double median, double sigma, Generator generator) {
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  TORCH_CHECK(self.is_floating_point(),
              "Cauchy distribution is a continuous probability distribution. dtype must be a "
              "floating point but you specified ",
              self.scalar_type());
  return Fill<Cauchy>("aten::cauchy_", self, generator, {Input(median), Input(sigma)});
}

at::Tensor& GeometricInPlace(at::Tensor& self, double p, Generator generator) {
  CheckImplemented(!self.is_complex(), "geometric_cpu", ToDType(self.scalar_type()));
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  return Fill<Geometric>("aten::geometric_", self, generator, {Input(p)});
}

at::Tensor& BernoulliFloat(at::Tensor& self, double p, Generator generator) {
  CheckImplemented(!self.is_complex(), "bernoulli_scalar_cpu_", ToDType(self.scalar_type()));
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return Fill<Bernoulli>("aten::bernoulli_", self, generator, {Input(p)});
}

at::Tensor& BernoulliTensor(at::Tensor& self, const at::Tensor& p, Generator generator) {
  CheckImplemented(!self.is_complex(), "bernoulli_tensor_cpu_self_", ToDType(self.scalar_type()));
  CheckImplemented(p.is_floating_point(), "bernoulli_tensor_cpu_p_", ToDType(p.scalar_type()));
  at::Tensor all = (IsXla(p) ? p : p.to(self.device())).expand(self.sizes());
  return Fill<Bernoulli>("aten::bernoulli_", self, generator, {Unwrap(all).value()});
}

at::Tensor BernoulliSelf(const at::Tensor& self, Generator generator) {
  at::Tensor out = at::empty(self.sizes(), self.options());
  return BernoulliTensor(out, self, generator);
}

at::Tensor& BernoulliOut(const at::Tensor& p, Generator generator, at::Tensor& out) {
  at::native::resize_output(out, p.sizes());
  return BernoulliTensor(out, p, std::move(generator));
}

at::Tensor BernoulliP(const at::Tensor& self, double p, Generator generator) {
  at::Tensor out = at::empty(self.sizes(), self.options());
  return BernoulliFloat(out, p, generator);
}

// from + an integer below `range`; a range of 0 stands for 2^64.
at::Tensor& FillIntegers(at::Tensor& self, int64_t from, uint64_t range,
                         const Generator& generator) {
  auto input = static_cast<int64_t>(range);
  if (range == 0) return Fill<Any64>("aten::random_", self, generator, {});
  if (range <= uint64_t{1} << 32)
    return Fill<Below32>("aten::random_", self, generator, {Input(from), Input(input)});
  return Fill<Below64>("aten::random_wide_", self, generator, {Input(from), Input(input)});
}

// The largest integer that random_ draws: what the type holds without gaps.
int64_t LargestInteger(at::ScalarType t) {
  switch (t) {
    case at::kBool: return 1;
    case at::kByte: return std::numeric_limits<uint8_t>::max();
    case at::kChar: return std::numeric_limits<int8_t>::max();
    case at::kShort: return std::numeric_limits<int16_t>::max();
    case at::kInt: return std::numeric_limits<int32_t>::max();
    case at::kUInt16: return std::numeric_limits<uint16_t>::max();
    case at::kUInt32: return std::numeric_limits<uint32_t>::max();
    case at::kHalf: return int64_t{1} << 11;
    case at::kBFloat16: return int64_t{1} << 8;
    case at::kFloat: return int64_t{1} << 24;
    case at::kDouble: return int64_t{1} << 53;
    default: return std::numeric_limits<int64_t>::max();
  }
}

int64_t LowestInteger(at::ScalarType t) {
  switch (t) {
    case at::kChar: return std::numeric_limits<int8_t>::min();
    case at::kShort: return std::numeric_limits<int16_t>::min();
    case at::kInt: return std::numeric_limits<int32_t>::min();
    case at::kLong: return std::numeric_limits<int64_t>::min();
    default: return 0;
  }
}

void CheckIntegerBound(const char* name, int64_t v, const at::Tensor& self) {
  if (!c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)) return;
  TORCH_CHECK(v >= LowestInteger(self.scalar_type()) && v <= LargestInteger(self.scalar_type()),
              name, " is out of bounds for ", self.dtype());
}

at::Tensor& RandomAll(at::Tensor& self, Generator generator) {
  CheckImplemented(!self.is_complex(), "random_kernel_cpu", ToDType(self.scalar_type()));
  auto range = static_cast<uint64_t>(LargestInteger(self.scalar_type())) + 1;
  return FillIntegers(self, 0, range, generator);
}

at::Tensor& RandomFrom(at::Tensor& self, int64_t from, std::optional<int64_t> to,
                       Generator generator) {
  TORCH_CHECK(!self.is_complex(),
              "check_random_bounds handles only integral, floating-point and boolean types");
  CheckIntegerBound("from", from, self);
  if (to.has_value()) {
    TORCH_CHECK(from < *to, "random_ expects 'from' to be less than 'to', but got from=", from,
                " >= to=", *to);
    CheckIntegerBound("to - 1", *to - 1, self);
    return FillIntegers(self, from, static_cast<uint64_t>(*to) - static_cast<uint64_t>(from),
                        generator);
  }
  auto largest = static_cast<uint64_t>(LargestInteger(self.scalar_type()));
  return FillIntegers(self, from, largest - static_cast<uint64_t>(from) + 1, generator);
}

at::Tensor& RandomTo(at::Tensor& self, int64_t to, Generator generator) {
  return RandomFrom(self, 0, to, generator);
}

ir::Value DrawPermutation(int64_t n, at::ScalarType t, int device, const Generator& generator) {
  bool counts = at::isFloatingType(t) || t == at::kByte || c10::isSignedType(t);
  CheckImplemented(counts && !c10::isComplexType(t), "randperm", ToDType(t));
  TORCH_CHECK(t != at::kHalf || n <= 2049, "n cannot be greater than 2049 for Half type.");
  TORCH_CHECK(t != at::kFloat || n <= (1 << 24) + 1,
              "n cannot be greater than 2^24+1 for Float type.");
  if (n > 0 && c10::isIntegralType(t, /*includeBool=*/false)) CheckFits(n - 1, ToDType(t));
  return Draw<Permutation>("aten::randperm", {ToDType(t), {n}}, device, generator, {});
}

at::Tensor RandpermGenerator(c10::SymInt n, Generator generator,
                             std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                             std::optional<at::Device> device, std::optional<bool>) {
  int64_t count = n.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(count >= 0, "Trying to create tensor with negative dimension ", count, ": [", count,
              "]");
  int d = DeviceOf(device);
  return Wrap(DrawPermutation(count, dtype.value_or(at::kLong), d, generator), d);
}

at::Tensor Randperm(c10::SymInt n, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<at::Device> device,
                    std::optional<bool> pin_memory) {
  return RandpermGenerator(std::move(n), {}, dtype, layout, device, pin_memory);
}

at::Tensor& RandpermGeneratorOut(c10::SymInt n, Generator generator, at::Tensor& out) {
  int64_t count = n.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(count >= 0, "n must be non-negative, got", count);
  at::native::resize_output(out, {count});
  const lazy::Tensor& tensor = Unwrap(out);
  tensor.Write(DrawPermutation(count, out.scalar_type(), tensor.device(), generator));
  return out;
}
at::Tensor& RandpermOut(c10::SymInt n, at::Tensor& out) {
  return RandpermGeneratorOut(std::move(n), {}, out);
}

// The category whose probability divided by an exponential number is largest is a sample; with
// replacement there is a row of such numbers for each sample. Probabilities are not looked at.
at::Tensor Multinomial(const at::Tensor& self, c10::SymInt num_samples, bool replacement,
                       Generator generator) {
  int64_t n = num_samples.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      at::isFloatingType(self.scalar_type()),
      "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(n > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || n <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  if (!replacement || n == 1) {
    at::Tensor q = at::empty(self.sizes(), self.options());
    ExponentialInPlace(q, 1, generator);
    q = at::div(self, q);
    return n == 1 ? at::argmax(q, -1, /*keepdim=*/true) : std::get<1>(at::topk(q, n, -1));
  }
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes.insert(sizes.end() - 1, n);
  at::Tensor q = at::empty(sizes, self.options());
  ExponentialInPlace(q, 1, generator);
  return at::argmax(at::div(self.unsqueeze(-2), q), -1);
}

// The slope of each negative element is random; `noise` keeps it for the gradient.
at::Tensor RRelu(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                 const at::Scalar& upper, bool training, Generator generator) {
  TORCH_CHECK(lower.toDouble() <= upper.toDouble(),
              "Lower bound should be less than or equal to the upper bound");
  if (!training) return at::leaky_relu(self, (lower.toDouble() + upper.toDouble()) / 2);
  TORCH_CHECK(noise.sizes() == self.sizes(),
              "noise tensor shape must match self tensor shape. Got ",
              "self.shape = ", self.sizes(), " noise.shape = ", noise.sizes());
  UniformInPlace(noise, lower.toDouble(), upper.toDouble(), generator);
  noise.masked_fill_(self.gt(0), 1);
  return self.mul(noise);
}

at::Tensor& RReluInPlace(at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                         const at::Scalar& upper, bool training, Generator generator) {
  return self.copy_(RRelu(self, noise, lower, upper, training, generator));
}

}  // namespace

XLA_OPS(m) {
  m.impl("rrelu_with_noise", TORCH_FN(RRelu));
  m.impl("rrelu_with_noise_", TORCH_FN(RReluInPlace));
  m.impl("uniform_", TORCH_FN(UniformInPlace));
  m.impl("normal_", TORCH_FN(NormalInPlace));
  m.impl("normal.Tensor_float", TORCH_FN(NormalTensorFloat));
  m.impl("normal.float_Tensor", TORCH_FN(NormalFloatTensor));
  m.impl("normal.Tensor_Tensor", TORCH_FN(NormalTensorTensor));
  m.impl("log_normal_", TORCH_FN(LogNormalInPlace));
  m.impl("exponential_", TORCH_FN(ExponentialInPlace));
  m.impl("cauchy_", TORCH_FN(CauchyInPlace));
  m.impl("geometric_", TORCH_FN(GeometricInPlace));
  m.impl("bernoulli_.float", TORCH_FN(BernoulliFloat));
  m.impl("bernoulli_.Tensor", TORCH_FN(BernoulliTensor));
  m.impl("bernoulli", TORCH_FN(BernoulliSelf));
  m.impl("bernoulli.p", TORCH_FN(BernoulliP));
  m.impl("bernoulli.out", TORCH_FN(BernoulliOut));
  m.impl("random_", TORCH_FN(RandomAll));
  m.impl("random_.from", TORCH_FN(RandomFrom));
  m.impl("random_.to", TORCH_FN(RandomTo));
  m.impl("randperm", TORCH_FN(Randperm));
  m.impl("randperm.generator", TORCH_FN(RandpermGenerator));
  m.impl("randperm.out", TORCH_FN(RandpermOut));
  m.impl("randperm.generator_out", TORCH_FN(RandpermGeneratorOut));
  m.impl("multinomial", TORCH_FN(Multinomial));
}

}  // namespace torch_xla::ops
