// Module text, constants, regions and scopes.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "hlo/builder.h"
#include "hlo/constant.h"
#include "hlo/control.h"
#include "hlo/elementwise.h"
#include "hlo/embed.h"
#include "hlo/movement.h"
#include "hlo/reduce.h"

namespace torch_xla::hlo {
namespace {

using Values = std::vector<Value>;

std::string ErrorOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The literal of a constant, as the module shows it.
std::string Literal(const std::function<Value(Builder&)>& make) {
  Builder b;
  std::string text = b.Finish({make(b)});
  size_t begin = text.find("dense<") + 6;
  return text.substr(begin, text.find("> : ", begin) - begin);
}

TEST(Builder, GoldenModule) {
  Builder b("step");
  Value x = b.Parameter({DType::kF32, {2, 3}}, true);
  Value y = b.Parameter({DType::kF32, {3}}, true, 1);
  Value flag = b.Parameter({DType::kBool, {}});
  Value sum = Add(x, BroadcastTo(y, {2, 3}));
  EXPECT_EQ(b.Finish({Select(flag, sum, x), y}), R"(module @"step" {
func.func public @main(%arg0: tensor<2x3xf32> {jax.buffer_donor = true}, %arg1: tensor<3xf32> {tf.aliasing_output = 1 : i32}, %arg2: tensor<i1>) -> (tensor<2x3xf32>, tensor<3xf32>) {
  %3 = "stablehlo.broadcast_in_dim"(%arg1) <{broadcast_dimensions = array<i64: 1>}> : (tensor<3xf32>) -> tensor<2x3xf32>
  %4 = "stablehlo.add"(%arg0, %3) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %5 = "stablehlo.select"(%arg2, %4, %arg0) : (tensor<i1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  "func.return"(%5, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> ()
}
}
)");
  EXPECT_EQ(b.num_operations(), 3);
  EXPECT_EQ(b.num_parameters(), 3);
}

TEST(Builder, GoldenRegion) {
  Builder b;
  Value x = b.Parameter({DType::kF32, {0, 3}});
  EXPECT_EQ(b.Finish({Reduce(x, {0}, Reducer::kMax)}), R"(module @"graph" {
func.func public @main(%arg0: tensor<0x3xf32>) -> (tensor<3xf32>) {
  %1 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
  %5 = "stablehlo.reduce"(%arg0, %1) <{dimensions = array<i64: 0>}> ({
  ^bb0(%2: tensor<f32>, %3: tensor<f32>):
  %4 = "stablehlo.maximum"(%2, %3) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%4) : (tensor<f32>) -> ()
  }) : (tensor<0x3xf32>, tensor<f32>) -> (tensor<3xf32>)
  "func.return"(%5) : (tensor<3xf32>) -> ()
}
}
)");
}

TEST(Builder, LocationsAreNamedEscapedAndShared) {
  Builder b;
  Value x = b.Parameter({DType::kF32, {}});
  b.SetLocation({"aten::neg", "a \"b\"\\c.py", 7});
  Value y = Neg(Neg(x));
  b.SetLocation({"", "d.py", 8});
  y = Neg(y);
  b.SetLocation({"aten::neg", "", 0});  // no file: no location
  std::string text = b.Finish({Neg(y)});
  EXPECT_EQ(text.find(R"(#loc0 = loc("aten::neg"("a \"b\"\\c.py":7:0))
#loc1 = loc("d.py":8:0)
module)"),
            0U);
  EXPECT_NE(text.find("%2 = \"stablehlo.negate\"(%1) : (tensor<f32>) -> tensor<f32> loc(#loc0)\n"),
            std::string::npos);
  EXPECT_NE(text.find("%4 = \"stablehlo.negate\"(%3) : (tensor<f32>) -> tensor<f32>\n"),
            std::string::npos);
}

TEST(Builder, FinishTwice) {
  Builder b;
  Value x = b.Parameter({DType::kF32, {}});
  Value y = Neg(x);
  std::string first = b.Finish({y});
  EXPECT_EQ(b.Finish({y}), first);
  EXPECT_NE(b.Finish({Neg(y)}), first);
}

TEST(Builder, ScalarsAreBuiltOnce) {
  Builder b;
  Scalar(b, DType::kF32, 1);
  Scalar(b, DType::kF32, 1);
  EXPECT_EQ(b.num_operations(), 1);
  Scalar(b, DType::kF64, 1);
  Scalar(b, DType::kF32, -0.0);
  Scalar(b, DType::kF32, 0.0);
  EXPECT_EQ(b.num_operations(), 4);
}

TEST(Builder, ValuesStayInTheirBuilderAndRegion) {
  Builder a;
  Builder b;
  Value x = a.Parameter({DType::kF32, {3}});
  Value y = b.Parameter({DType::kF32, {3}});
  EXPECT_EQ(ErrorOf([&] { Add(x, y); }), "[stablehlo.add] an operand belongs to another builder");
  EXPECT_EQ(ErrorOf([&] { Add(x, Value()); }), "[stablehlo.add] an operand is not a value");

  Value leaked;
  Value pred = a.Parameter({DType::kBool, {}});
  auto branch = [&](Builder&, std::span<const Value>) { return Values{leaked = Neg(x)}; };
  Value outside = If(pred, branch, branch)[0];
  EXPECT_EQ(outside.shape(), x.shape());
  EXPECT_EQ(ErrorOf([&] { Neg(leaked); }),
            "[stablehlo.negate] an operand was built inside a region that has ended");
}

TEST(Builder, ErrorsLeaveTheModuleAsItWas) {
  Builder b;
  Value x = b.Parameter({DType::kF32, {3}});
  Builder other;
  std::string before = b.Finish({x});
  ErrorOf([&] { b.Emit("add", {x, other.Parameter({DType::kF32, {3}})}, "", x.shape()); });
  EXPECT_EQ(b.Finish({x}), before);
  auto fails = [&](Builder&, std::span<const Value> v) -> Values {
    Neg(v[0]);
    Throw(Code::kInvalidArgument, "inside");
  };
  EXPECT_EQ(ErrorOf([&] { While(std::span(&x, 1), fails, fails); }), "inside");
  EXPECT_EQ(b.Finish({x}), before);
}

TEST(Value, Dim) {
  Builder b;
  Value x = b.Parameter({DType::kF32, {2, 3}});
  EXPECT_EQ(x.dim(-1), 3);
  EXPECT_EQ(x.dim(0), 2);
  EXPECT_EQ(ErrorOf([&] { x.dim(2); }), "[hlo] dimension 2 is out of range for tensor<2x3xf32>");
  EXPECT_EQ(ErrorOf([] { Value().shape(); }), "[hlo] this value was never set");
}

struct FloatCase {
  DType dtype;
  double value;
  const char* literal;
};

class FloatLiteral : public testing::TestWithParam<FloatCase> {};

TEST_P(FloatLiteral, IsExact) {
  const FloatCase& c = GetParam();
  EXPECT_EQ(Literal([&](Builder& b) { return Scalar(b, c.dtype, c.value); }), c.literal);
}

INSTANTIATE_TEST_SUITE_P(
    All, FloatLiteral,
    testing::Values(
        FloatCase{DType::kF32, 1, "1.0"}, FloatCase{DType::kF32, -2.5, "-2.5"},
        FloatCase{DType::kF32, -0.0, "-0.0"}, FloatCase{DType::kF32, 0.1, "0.10000000149011612"},
        FloatCase{DType::kF32, 1e-5, "9.999999747378752e-06"},
        FloatCase{DType::kF32, 1e10, "1.0e+10"}, FloatCase{DType::kF32, 1e-40, "0x000116C2"},
        FloatCase{DType::kF32, 1e300, "0x7F800000"}, FloatCase{DType::kF32, NAN, "0x7FC00000"},
        FloatCase{DType::kF32, 1 + 0x1p-24, "1.0"},  // a tie goes to the even one
        FloatCase{DType::kF32, 1 + 0x3p-24, "1.000000238418579"},
        FloatCase{DType::kF64, 0.1, "0.1"}, FloatCase{DType::kF64, 1e300, "0x7E37E43C8800759C"},
        FloatCase{DType::kF64, -INFINITY, "0xFFF0000000000000"},
        FloatCase{DType::kF64, 5e-324, "0x0000000000000001"},
        FloatCase{DType::kF16, 65504, "65504.0"}, FloatCase{DType::kF16, 65519, "65504.0"},
        FloatCase{DType::kF16, 65520, "0x7C00"}, FloatCase{DType::kF16, NAN, "0x7E00"},
        FloatCase{DType::kF16, 6e-8, "5.960464477539063e-08"},
        FloatCase{DType::kBF16, 0.1, "0.10009765625"}, FloatCase{DType::kBF16, INFINITY, "0x7F80"},
        FloatCase{DType::kBF16, NAN, "0x7FC0"}, FloatCase{DType::kF8E4M3FN, 448, "448.0"},
        FloatCase{DType::kF8E4M3FN, 1000, "0x7F"}, FloatCase{DType::kF8E4M3FN, -1000, "0xFF"},
        FloatCase{DType::kF8E5M2, INFINITY, "0x7C"}, FloatCase{DType::kF8E5M2, NAN, "0x7E"},
        FloatCase{DType::kF8E4M3FNUZ, -0.0, "0.0"}, FloatCase{DType::kF8E4M3FNUZ, NAN, "0x80"},
        FloatCase{DType::kF8E4M3FNUZ, 240, "240.0"}, FloatCase{DType::kF8E5M2FNUZ, 1e9, "0x80"},
        FloatCase{DType::kF8E5M2FNUZ, 0x1p-17, "7.62939453125e-06"}));

TEST(Constant, IntegersWrapAndConvert) {
  auto of = [](DType t, int64_t v) {
    return Literal([=](Builder& b) { return ScalarInt(b, t, v); });
  };
  EXPECT_EQ(of(DType::kS64, INT64_MIN), "-9223372036854775808");
  EXPECT_EQ(of(DType::kU64, -1), "18446744073709551615");
  EXPECT_EQ(of(DType::kU8, 300), "44");
  EXPECT_EQ(of(DType::kS8, 200), "-56");
  EXPECT_EQ(of(DType::kBool, 2), "true");
  EXPECT_EQ(of(DType::kBF16, 3), "3.0");
  EXPECT_EQ(of(DType::kC64, 3), "(3.0, 0.0)");
  EXPECT_EQ(of(DType::kC32, 2049), "(2048.0, 0.0)");
  EXPECT_EQ(Literal([](Builder& b) { return Scalar(b, DType::kS32, -2.9); }), "-2");
  EXPECT_EQ(Literal([](Builder& b) { return Scalar(b, DType::kU64, 0x1p63); }),
            "9223372036854775808");
  Builder b;
  EXPECT_EQ(ErrorOf([&] { Scalar(b, DType::kS32, NAN); }),
            "[stablehlo.constant] nan does not fit i32");
}

TEST(Constant, FromBytes) {
  auto of = [](const Shape& shape, const void* data) {
    return Literal([=](Builder& b) { return Constant(b, shape, data); });
  };
  const float floats[] = {1.0F, NAN};
  EXPECT_EQ(of({DType::kF32, {2}}, floats), "\"0x0000803F0000C07F\"");
  EXPECT_EQ(of({DType::kF32, {}}, floats), "1.0");
  EXPECT_EQ(of({DType::kF32, {1}}, floats + 1), "0x7FC00000");
  EXPECT_EQ(of({DType::kF32, {0, 4}}, nullptr), "");
  const bool bools[] = {true, false, false, true};
  EXPECT_EQ(of({DType::kBool, {2, 2}}, bools), "[[true, false], [false, true]]");
  const int16_t ints[] = {-1, 2, -3, 4};
  EXPECT_EQ(of({DType::kS16, {4}}, ints), "[-1, 2, -3, 4]");
  EXPECT_EQ(of({DType::kU16, {2, 1}}, ints), "[[65535], [2]]");
  const float complex[] = {1, 2, 1, 2};
  EXPECT_EQ(of({DType::kC64, {2}}, complex), "(1.0, 2.0)");
  EXPECT_EQ(of({DType::kC32, {2}}, complex), "(1.0, 2.0)");
}

// In f32, as XLA holds the numbers.
TEST(Constant, OfHalves) {
  auto of = [](std::complex<double> v) {
    return Literal([=](Builder& b) { return ScalarComplex(b, DType::kC32, v); });
  };
  EXPECT_EQ(of({0.1, -1e-8}), "(0.0999755859375, -0.0)");
  EXPECT_EQ(of({-65520, 6e-8}), "(0xFF800000, 5.960464477539063e-08)");
  EXPECT_EQ(of({NAN, 65519}), "(0x7FC00000, 65504.0)");
  Builder b;  // which keeps scalars
  EXPECT_EQ(Scalar(b, DType::kC64, 1).dtype(), DType::kC64);
  EXPECT_EQ(Scalar(b, DType::kC32, 1).dtype(), DType::kC32);
}

TEST(Constant, Limits) {
  auto low = [](DType t) { return Literal([=](Builder& b) { return MinValue(b, t); }); };
  auto high = [](DType t) { return Literal([=](Builder& b) { return MaxValue(b, t); }); };
  EXPECT_EQ(low(DType::kF32), "0xFF800000");
  EXPECT_EQ(high(DType::kF32), "0x7F800000");
  EXPECT_EQ(low(DType::kF8E4M3FN), "-448.0");
  EXPECT_EQ(low(DType::kS8), "-128");
  EXPECT_EQ(high(DType::kS8), "127");
  EXPECT_EQ(low(DType::kS64), "-9223372036854775808");
  EXPECT_EQ(high(DType::kS64), "9223372036854775807");
  EXPECT_EQ(low(DType::kU32), "0");
  EXPECT_EQ(high(DType::kU32), "4294967295");
  EXPECT_EQ(high(DType::kU64), "18446744073709551615");
  EXPECT_EQ(low(DType::kBool), "false");
  EXPECT_EQ(high(DType::kBool), "true");
  Builder b;
  EXPECT_EQ(ErrorOf([&] { MinValue(b, DType::kC64); }),
            "[stablehlo.constant] complex<f32> has no order");
}

// ---- Modules of users.

TEST(Embed, RenamesWhatTheModuleDefines) {
  Embedded e = Embed(R"(#map = affine_map<(d0) -> (d0)> // a comment @main {
!t = tensor<2xf32>
module @"a{" attributes {x.y = {z = "}"}} {
  func.func public @main(%main: !t {a = #map, b = "@main"}) -> (!t) {
    %0 = func.call @"f-1"(%main) : (!t) -> !t
    %1 = stablehlo.custom_call @other(%0) {n = -1.5e-05 : f32, d = #stablehlo<x y>} : (!t) -> !t
    return %1 : !t loc(#loc1)
  }
  func.func nested @"f-1"(%0: !t) -> !t { return %0 : !t }
} loc(#loc1)
#loc1 = loc("m.py":1:1)
)",
                     "u0_");
  EXPECT_EQ(e.aliases, R"(#u0_map = affine_map<(d0) -> (d0)>

!u0_t = tensor<2xf32>

#u0_loc1 = loc("m.py":1:1)
)");
  EXPECT_EQ(e.functions, R"(
  func.func private @"u0_main"(%main: !u0_t {a = #u0_map, b = "@main"}) -> (!u0_t) {
    %0 = func.call @"u0_f-1"(%main) : (!u0_t) -> !u0_t
    %1 = stablehlo.custom_call @other(%0) {n = -1.5e-05 : f32, d = #stablehlo<x y>} : (!u0_t) -> !u0_t
    return %1 : !u0_t loc(#u0_loc1)
  }
  func.func private @"u0_f-1"(%0: !u0_t) -> !u0_t { return %0 : !u0_t }
)");
}

TEST(Embed, RenamesSymbolsOfAnyOperation) {
  // All that stand outside of brackets; but not the function of XLA that a custom_call names.
  EXPECT_EQ(Embed(R"(sdy.mesh @mesh = <["x"=1]>
func.func private @Sharding(%x: !t) -> !t attributes {a = @inner} { return %x : !t }
func.func @main(%x: !t {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> !t {
  %0 = stablehlo.custom_call @Sharding(%x) {called_computations = [@Sharding]} : (!t) -> !t
  %1 = call @"Sharding"(%0) {a = @inner} : (!t) -> !t
  return %1 : !t
}
)",
                  "u1_")
                .functions,
            R"(sdy.mesh @"u1_mesh" = <["x"=1]>
func.func private @"u1_Sharding"(%x: !t) -> !t attributes {a = @inner} { return %x : !t }
func.func private @"u1_main"(%x: !t {sdy.sharding = #sdy.sharding<@"u1_mesh", [{"x"}]>}) -> !t {
  %0 = stablehlo.custom_call @Sharding(%x) {called_computations = [@"u1_Sharding"]} : (!t) -> !t
  %1 = call @"u1_Sharding"(%0) {a = @inner} : (!t) -> !t
  return %1 : !t
}
)");
}

TEST(Embed, RefusesSymbolsInStrings) {
  const std::string mesh = R"("sdy.mesh"() <{sym_name = "mesh"}> : () -> ())";
  for (const std::string& text : {mesh, "module @m { " + mesh + " }"}) {
    EXPECT_EQ(ErrorOf([&] { Embed(text, "u0_"); }),
              "the module has \"sdy.mesh\" in MLIR's generic form; write it in its own");
  }
  const std::string inside = "func.func @main() { \"func.return\"() : () -> () }";
  EXPECT_EQ(ErrorOf([&] { Embed(inside, "u0_"); }), "no error");
}

TEST(Embed, IsWrittenOncePerText) {
  const std::string square =
      "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
      "  %0 = stablehlo.multiply %x, %x : tensor<2xf32>\n  return %0 : tensor<2xf32>\n}\n";
  const std::string negate =
      "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
      "  %0 = stablehlo.negate %x : tensor<2xf32>\n  return %0 : tensor<2xf32>\n}\n";
  Builder b;
  const Shape f2{DType::kF32, {2}};
  Value x = b.Parameter(f2);
  for (const std::string& text : {square, negate, square}) {
    x = CallModule(b, text, std::span(&x, 1), std::span(&f2, 1)).at(0);
  }
  const std::string module = b.Finish({x});
  auto count = [&](std::string_view what) {
    int n = 0;
    for (size_t at = module.find(what); at != module.npos; at = module.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("func.func private"), 2) << module;
  EXPECT_EQ(count("callee = @\"u0_main\""), 2) << module;
  EXPECT_EQ(count("callee = @\"u1_main\""), 1) << module;
}

TEST(Embed, RefusesBrackets) {
  for (const char* text : {"module {", "module", "module { func.func @main() \"", "module {("}) {
    EXPECT_NE(ErrorOf([&] { Embed(text, "u0_"); }), "no error") << text;
  }
}

}  // namespace
}  // namespace torch_xla::hlo
