// Inferred shapes and error messages of the constructors, family by family.
#include <gtest/gtest.h>

#include "base/error.h"
#include "hlo/builder.h"
#include "hlo/cast.h"
#include "hlo/constant.h"
#include "hlo/control.h"
#include "hlo/dot.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"
#include "hlo/reduce.h"

namespace torch_xla::hlo {
namespace {

using Values = std::vector<Value>;

class Shapes : public testing::Test {
 protected:
  Value P(DType t, const Dims& dims) { return b.Parameter({t, dims}); }
  Value F(const Dims& dims) { return P(DType::kF32, dims); }
  static std::string Str(Value v) { return ToString(v.shape()); }
  static std::string ErrorOf(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return error.what();
    }
    return "no error";
  }
  Builder b;
};

TEST_F(Shapes, Elementwise) {
  Value x = F({2, 3});
  Value c = P(DType::kC64, {2});
  EXPECT_EQ(Str(Add(x, x)), "tensor<2x3xf32>");
  EXPECT_EQ(Str(Lt(x, x)), "tensor<2x3xi1>");
  EXPECT_EQ(Str(Abs(c)), "tensor<2xf32>");
  EXPECT_EQ(Str(Real(P(DType::kC128, {}))), "tensor<f64>");
  EXPECT_EQ(Str(Complex(x, x)), "tensor<2x3xcomplex<f32>>");
  Value h = P(DType::kF16, {2});
  Value halves = Complex(h, h);  // of which XLA has no type
  EXPECT_EQ(halves.shape(), (Shape{DType::kC32, {2}}));
  EXPECT_EQ(Str(halves), "tensor<2xcomplex<f32>>");
  EXPECT_EQ(Str(Imag(halves)), "tensor<2xf16>");
  EXPECT_EQ(Str(Abs(halves)), "tensor<2xf16>");
  EXPECT_EQ(ConvertTo(halves, DType::kC64).dtype(), DType::kC64);
  EXPECT_EQ(ConvertTo(c, DType::kC32).dtype(), DType::kC32);
  EXPECT_EQ(Str(ConvertTo(halves, DType::kF32)), "tensor<2xf32>");
  EXPECT_EQ(Str(IsFinite(x)), "tensor<2x3xi1>");
  EXPECT_EQ(Str(Convert(x, DType::kBF16)), "tensor<2x3xbf16>");
  EXPECT_EQ(Str(BitcastConvert(x, DType::kS32)), "tensor<2x3xi32>");
  EXPECT_EQ(Str(BitcastConvert(x, DType::kU8)), "tensor<2x3x4xui8>");
  EXPECT_EQ(Str(BitcastConvert(P(DType::kU16, {5, 2}), DType::kF32)), "tensor<5xf32>");
  int64_t n = b.num_operations();
  Convert(x, DType::kF32);
  EXPECT_EQ(b.num_operations(), n);
}

TEST_F(Shapes, ElementwiseErrors) {
  Value x = F({2, 3});
  Value p = P(DType::kBool, {2});
  EXPECT_EQ(ErrorOf([&] { Add(x, F({3})); }),
            "[stablehlo.add] operand shapes tensor<2x3xf32> and tensor<3xf32> differ");
  EXPECT_EQ(ErrorOf([&] { Convert(P(DType::kC64, {}), DType::kC32); }),
            "[stablehlo.convert] does not round to ComplexHalf: see cast.h");
  EXPECT_EQ(ErrorOf([&] {
              Add(x, P(DType::kF64, {2, 3}));
            }),
            "[stablehlo.add] operand shapes tensor<2x3xf32> and tensor<2x3xf64> differ");
  EXPECT_EQ(ErrorOf([&] { Sub(p, p); }), "[stablehlo.subtract] is not defined for tensor<2xi1>");
  EXPECT_EQ(ErrorOf([&] { And(x, x); }), "[stablehlo.and] is not defined for tensor<2x3xf32>");
  EXPECT_EQ(ErrorOf([&] { Exp(P(DType::kS32, {})); }),
            "[stablehlo.exponential] is not defined for tensor<i32>");
  Value c = P(DType::kC64, {});
  EXPECT_EQ(ErrorOf([&] { Lt(c, c); }),
            "[stablehlo.compare] LT is not defined for tensor<complex<f32>>");
  EXPECT_EQ(ErrorOf([&] { Select(p, x, x); }),
            "[stablehlo.select] predicate tensor<2xi1> does not fit tensor<2x3xf32>");
  EXPECT_EQ(ErrorOf([&] { Clamp(F({3}), x, x); }),
            "[stablehlo.clamp] limit tensor<3xf32> does not fit tensor<2x3xf32>");
  EXPECT_EQ(ErrorOf([&] { BitcastConvert(x, DType::kF64); }),
            "[stablehlo.bitcast_convert] tensor<2x3xf32> to f64: the last dimension should be 2");
  EXPECT_EQ(ErrorOf([&] { Neg(Token(b)); }),
            "[stablehlo.negate] an operand is a token, not a tensor");
}

TEST_F(Shapes, Movement) {
  Value x = F({2, 1, 3});
  EXPECT_EQ(Str(BroadcastTo(x, {5, 2, 4, 3})), "tensor<5x2x4x3xf32>");
  EXPECT_EQ(Str(BroadcastTo(F({}), {0, 2})), "tensor<0x2xf32>");
  EXPECT_EQ(Str(Reshape(x, {6})), "tensor<6xf32>");
  EXPECT_EQ(Str(Transpose(x, {2, 0, 1})), "tensor<3x2x1xf32>");
  EXPECT_EQ(Str(SliceDim(F({7, 2}), 0, 1, 7, 4)), "tensor<2x2xf32>");
  EXPECT_EQ(Str(Concatenate({F({2, 1}), F({2, 0}), F({2, 4})}, 1)), "tensor<2x5xf32>");
  EXPECT_EQ(Str(Pad(F({3, 4}), F({}), {1, -1}, {2, -3}, {1, 0})), "tensor<8x0xf32>");
  const Value starts[] = {ScalarInt(b, DType::kS64, 0)};
  EXPECT_EQ(Str(DynamicSlice(F({5}), starts, {2})), "tensor<2xf32>");
  EXPECT_EQ(Str(DynamicUpdateSlice(F({5}), F({2}), starts)), "tensor<5xf32>");
  int64_t n = b.num_operations();
  Value same = Transpose(Reshape(BroadcastTo(x, {2, 1, 3}), {2, 1, 3}), {0, 1, 2});
  Reverse(Slice(same, {0, 0, 0}, {2, 1, 3}, {1, 1, 1}), {});
  EXPECT_EQ(b.num_operations(), n) << "what changes nothing is not built";
}

TEST_F(Shapes, MovementErrors) {
  Value x = F({2, 3});
  EXPECT_EQ(
      ErrorOf([&] {
        BroadcastTo(x, {3, 2});
      }),
      "[stablehlo.broadcast_in_dim] tensor<2x3xf32> does not broadcast to [3, 2] along [0, 1]");
  EXPECT_EQ(ErrorOf([&] { BroadcastTo(x, {3}); }),
            "[stablehlo.broadcast_in_dim] tensor<2x3xf32> does not broadcast to [3]");
  EXPECT_EQ(ErrorOf([&] { Reshape(x, {5}); }),
            "[stablehlo.reshape] tensor<2x3xf32> has not as many elements as [5]");
  EXPECT_EQ(ErrorOf([&] {
              Transpose(x, {0, 0});
            }),
            "[stablehlo.transpose] permutation [0, 0]: 0 is repeated");
  EXPECT_EQ(ErrorOf([&] {
              Transpose(x, {0, 2});
            }),
            "[stablehlo.transpose] permutation [0, 2]: 2 is out of range for rank 2");
  EXPECT_EQ(ErrorOf([&] { SliceDim(x, 1, 0, 4); }),
            "[stablehlo.slice] start [0, 0], limit [2, 4], strides [1, 1] do not fit "
            "tensor<2x3xf32>");
  EXPECT_EQ(ErrorOf([&] {
              Concatenate({x, F({3, 3})}, 1);
            }),
            "[stablehlo.concatenate] operand shapes tensor<2x3xf32> and tensor<3x3xf32> do not "
            "concatenate along 1");
  EXPECT_EQ(ErrorOf([&] {
              Pad(x, F({}), {-3, 0}, {0, 0}, {0, 0});
            }),
            "[stablehlo.pad] low [-3, 0] and high [0, 0] cut more than tensor<2x3xf32> has");
  const Value starts[] = {ScalarInt(b, DType::kS64, 0)};
  EXPECT_EQ(ErrorOf([&] {
              DynamicSlice(x, starts, {1, 1});
            }),
            "[stablehlo.dynamic_slice] 1 start indices for tensor<2x3xf32>");
}

TEST_F(Shapes, GatherScatter) {
  Value x = F({6, 4, 5});
  Value i = P(DType::kS64, {2, 3});
  EXPECT_EQ(Str(Gather(x, i, {{1, 3}, {1}, {}, {}, {1}, 2}, {6, 1, 5})), "tensor<2x6x3x5xf32>");
  EXPECT_EQ(Str(Gather(x, i, {{1}, {0, 1}, {}, {}, {0, 1, 2}, 1}, {1, 1, 4})), "tensor<2x4xf32>");
  EXPECT_EQ(Str(Gather(F({2, 6}), i, {{}, {1}, {0}, {0}, {1}, 2}, {1, 1})), "tensor<2x3xf32>");
  EXPECT_EQ(ErrorOf([&] {
              Gather(x, i, {{2}, {0}, {}, {}, {0}, 2}, {1, 4, 6});
            }),
            "[stablehlo.gather] window dimensions [2] should have 2 entries");
  EXPECT_EQ(ErrorOf([&] {
              Gather(x, i, {{2, 3}, {0}, {}, {}, {0}, 2}, {1, 4, 6});
            }),
            "[stablehlo.gather] slice_sizes [1, 4, 6] do not fit tensor<6x4x5xf32>");
  EXPECT_EQ(ErrorOf([&] {
              Gather(x, x, {{2, 3}, {0}, {}, {}, {0}, 3}, {1, 4, 5});
            }),
            "[stablehlo.gather] indices tensor<6x4x5xf32> should be integers");
  auto add = [](Builder&, std::span<const Value> v) { return Values{Add(v[0], v[1])}; };
  EXPECT_EQ(Str(Scatter(x, i, F({2, 3, 4, 5}), {{2, 3}, {0}, {}, {}, {0}, 2}, add)),
            "tensor<6x4x5xf32>");
  EXPECT_EQ(ErrorOf([&] {
              Scatter(x, i, F({2, 2, 4, 5}), {{2, 3}, {0}, {}, {}, {0}, 2}, add);
            }),
            "[stablehlo.scatter] updates tensor<2x2x4x5xf32> do not fit tensor<6x4x5xf32> and "
            "indices tensor<2x3xi64>");
  auto compare = [](Builder&, std::span<const Value> v) { return Values{Lt(v[0], v[1])}; };
  EXPECT_EQ(ErrorOf([&] {
              Scatter(x, i, F({2, 3, 4, 5}), {{2, 3}, {0}, {}, {}, {0}, 2}, compare);
            }),
            "[stablehlo.scatter] the body does not return one scalar for each input");
}

TEST_F(Shapes, Reductions) {
  Value x = F({2, 3, 4});
  EXPECT_EQ(Str(Reduce(x, {2, 0}, Reducer::kSum)), "tensor<3xf32>");
  EXPECT_EQ(Str(Reduce(x, {}, Reducer::kMin)), "tensor<2x3x4xf32>");
  EXPECT_EQ(Str(Reduce(P(DType::kBool, {0}), {0}, Reducer::kAnd)), "tensor<i1>");
  Value init = Scalar(b, DType::kF32, 0);
  auto window = [&](int64_t size, int64_t n, int64_t stride, int64_t base, int64_t dilation,
                    int64_t low, int64_t high) {
    return Str(ReduceWindow(F({n}), init, {size}, {stride}, {base}, {dilation}, {low}, {high},
                            Reducer::kSum));
  };
  EXPECT_EQ(window(3, 8, 2, 1, 1, 1, 1), "tensor<4xf32>");
  EXPECT_EQ(window(3, 4, 1, 2, 2, 0, 0), "tensor<3xf32>");
  EXPECT_EQ(window(9, 8, 1, 1, 1, 0, 0), "tensor<0xf32>");
  EXPECT_EQ(window(2, 0, 1, 1, 1, 2, 1), "tensor<2xf32>");
  EXPECT_EQ(window(2, 8, 1, 1, 1, -2, -1), "tensor<4xf32>");
  Value image = F({4, 6});
  EXPECT_EQ(Str(SelectAndScatter(image, F({2, 3}), init, {2, 2}, {2, 2}, {0, 0}, {0, 0})),
            "tensor<4x6xf32>");
  const Value operands[] = {x, P(DType::kS64, {2, 3, 4})};
  auto less = [](Builder&, std::span<const Value> v) { return Values{Lt(v[0], v[1])}; };
  Values sorted = Sort(operands, 1, false, less);
  EXPECT_EQ(Str(sorted[1]), "tensor<2x3x4xi64>");
}

TEST_F(Shapes, ReductionErrors) {
  Value x = F({2, 3});
  EXPECT_EQ(ErrorOf([&] { Reduce(x, {2}, Reducer::kSum); }),
            "[stablehlo.reduce] dimensions [2]: 2 is out of range for rank 2");
  EXPECT_EQ(ErrorOf([&] {
              Reduce(x, {0, 0}, Reducer::kSum);
            }),
            "[stablehlo.reduce] dimensions [0, 0]: 0 is repeated");
  EXPECT_EQ(ErrorOf([&] { Reduce(P(DType::kC64, {2}), {0}, Reducer::kMax); }),
            "[stablehlo.constant] complex<f32> has no order");
  EXPECT_EQ(ErrorOf([&] {
              ReduceWindow(x, x, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, Reducer::kSum);
            }),
            "[stablehlo.reduce_window] the init tensor<2x3xf32> should be a scalar of the type of "
            "tensor<2x3xf32>");
  EXPECT_EQ(
      ErrorOf([&] {
        SelectAndScatter(x, F({2, 2}), Scalar(b, DType::kF32, 0), {1, 3}, {1, 1}, {0, 0}, {0, 0});
      }),
      "[stablehlo.select_and_scatter] the source tensor<2x2xf32> should be tensor<2x1xf32>");
  auto sum = [](Builder&, std::span<const Value> v) { return Values{Add(v[0], v[1])}; };
  EXPECT_EQ(ErrorOf([&] { Sort(std::span(&x, 1), 0, false, sum); }),
            "[stablehlo.sort] the comparator does not return a bool");
}

TEST_F(Shapes, Dot) {
  Value x = F({5, 2, 3});
  EXPECT_EQ(Str(DotGeneral(x, F({4, 3, 5}), {0}, {2}, {2}, {1})), "tensor<5x2x4xf32>");
  EXPECT_EQ(Str(DotGeneral(F({2}), F({3}), {}, {}, {}, {})), "tensor<2x3xf32>");
  EXPECT_EQ(Str(DotGeneral(P(DType::kBF16, {3}), P(DType::kBF16, {3}), {}, {}, {0}, {0},
                           Precision::kDefault, DType::kF32)),
            "tensor<f32>");
  EXPECT_EQ(ErrorOf([&] {
              DotGeneral(x, F({5, 4, 3}), {0}, {0}, {2}, {1});
            }),
            "[stablehlo.dot_general] contracting dimensions 2 of tensor<5x2x3xf32> and 1 of "
            "tensor<5x4x3xf32> differ");
  EXPECT_EQ(ErrorOf([&] {
              DotGeneral(x, F({5, 3, 4}), {0}, {0}, {0}, {0});
            }),
            "[stablehlo.dot_general] a dimension is both batch and contracting");
}

TEST_F(Shapes, Convolution) {
  ConvDims dims = ConvDims::Default(2);
  Value x = F({2, 4, 8, 9});
  EXPECT_EQ(Str(Convolution(x, F({6, 2, 3, 3}), dims, {2, 1}, {1, 0}, {1, 1}, {1, 1}, {1, 2}, 2)),
            "tensor<2x6x4x6xf32>");
  EXPECT_EQ(Str(Convolution(F({4, 3, 8}), F({6, 3, 3}), ConvDims::Default(1), {1}, {-1}, {0}, {2},
                            {1}, 1, 2)),
            "tensor<2x6x12xf32>");
  EXPECT_EQ(ErrorOf([&] {
              Convolution(x, F({6, 3, 3, 3}), dims, {1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1});
            }),
            "[stablehlo.convolution] features of tensor<2x4x8x9xf32> and tensor<6x3x3x3xf32> do "
            "not fit with 1 groups");
  EXPECT_EQ(ErrorOf([&] {
              Convolution(x, F({6, 4, 3, 3}), dims, {1}, {0, 0}, {0, 0}, {1, 1}, {1, 1});
            }),
            "[stablehlo.convolution] strides [1] should have 2 entries");
}

TEST_F(Shapes, Control) {
  Value x = F({3});
  Value pred = P(DType::kBool, {});
  auto yes = [&](Builder&, std::span<const Value>) { return Values{pred}; };
  auto same = [](Builder&, std::span<const Value> v) { return Values(v.begin(), v.end()); };
  EXPECT_EQ(Str(While(std::span(&x, 1), yes, same)[0]), "tensor<3xf32>");
  EXPECT_EQ(ErrorOf([&] { While(std::span(&x, 1), same, same); }),
            "[stablehlo.while] the condition does not return one tensor<i1>");
  EXPECT_EQ(ErrorOf([&] {
              While(std::span(&x, 1), yes, [](Builder&, std::span<const Value> v) {
                return Values{Convert(v[0], DType::kF64)};
              });
            }),
            "[stablehlo.while] the body returns tensor<3xf64> for the carried tensor<3xf32> at 0");
  auto none = [](Builder&, std::span<const Value>) { return Values{}; };
  EXPECT_EQ(ErrorOf([&] { If(pred, yes, none); }),
            "[stablehlo.if] the branches return different types");
  const Shape results[] = {{DType::kS32, {2}}};
  Values called = CustomCall(b, "f", std::span(&x, 1), results, {}, false, {.returns_token = true});
  ASSERT_EQ(called.size(), 2U);
  EXPECT_EQ(Str(called[0]), "tensor<2xi32>");
  EXPECT_TRUE(called[1].is_token());
  EXPECT_EQ(ErrorOf([&] {
              CustomCall(b, "f", std::span(&x, 1), results, {}, false, {.aliases = {{0, 0}}});
            }),
            "[stablehlo.custom_call] f: output 0 cannot share the buffer of operand 0");
}

TEST_F(Shapes, Algorithms) {
  EXPECT_EQ(Str(Cholesky(F({2, 3, 3}), true)), "tensor<2x3x3xf32>");
  EXPECT_EQ(ErrorOf([&] {
              Cholesky(F({2, 3}), true);
            }),
            "[stablehlo.cholesky] tensor<2x3xf32> is not a batch of square matrices");
  EXPECT_EQ(Str(TriangularSolve(F({3, 3}), F({3, 5}), true, true, false)), "tensor<3x5xf32>");
  EXPECT_EQ(ErrorOf([&] {
              TriangularSolve(F({3, 3}), F({3, 5}), false, true, false);
            }),
            "[stablehlo.triangular_solve] operand shapes tensor<3x3xf32> and tensor<3x5xf32> do "
            "not fit");
  EXPECT_EQ(Str(Fft(F({2, 8}), FftType::kRfft, {8})), "tensor<2x5xcomplex<f32>>");
  EXPECT_EQ(Str(Fft(P(DType::kC128, {2, 5}), FftType::kIrfft, {9})), "tensor<2x9xf64>");
  EXPECT_EQ(ErrorOf([&] { Fft(F({8}), FftType::kFft, {8}); }),
            "[stablehlo.fft] is not defined for tensor<8xf32>");
}

}  // namespace
}  // namespace torch_xla::hlo
