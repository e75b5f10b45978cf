// Prints one module per constructor and type, each after a line "// ----- name", for the tests in
// tests/hlo that parse, verify and run them with an independent MLIR and XLA.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "hlo/builder.h"
#include "hlo/cast.h"
#include "hlo/collective.h"
#include "hlo/constant.h"
#include "hlo/control.h"
#include "hlo/dot.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"
#include "hlo/reduce.h"

namespace torch_xla::hlo {
namespace {

using Values = std::vector<Value>;
using Make = std::function<Values(Builder&)>;

void Print(const std::string& name, const Make& make) {
  Builder b("m");
  Values outputs = make(b);
  std::printf("// ----- %s\n%s", name.c_str(), b.Finish(outputs).c_str());
}

std::string NameOf(DType t) { return t == DType::kC32 ? "complex<f16>" : HloName(t); }

// For every type that the constructor accepts: what it accepts must verify.
void PrintForEachType(const std::string& name, const std::function<Values(Builder&, DType)>& make) {
  for (int i = 0; i < kNumDTypes; ++i) {
    auto t = static_cast<DType>(i);
    try {
      Print(name + "/" + NameOf(t), [&](Builder& b) { return make(b, t); });
    } catch (const Error& error) {
      if (error.code() != Code::kInvalidArgument) throw;
    }
  }
}

// Two of these in one call would come in an order that the compiler chooses.
Value P(Builder& b, DType t, const Dims& dims) { return b.Parameter({t, dims}); }
Value PF(Builder& b, const Dims& dims) { return b.Parameter({DType::kF32, dims}); }
Value Index(Builder& b, const Dims& dims) { return b.Parameter({DType::kS32, dims}); }

void Elementwise() {
  using Binary = Value (*)(Value, Value);
  const std::pair<const char*, Binary> binary[] = {
      {"add", Add},
      {"subtract", Sub},
      {"multiply", Mul},
      {"divide", Div},
      {"remainder", Rem},
      {"maximum", Max},
      {"minimum", Min},
      {"power", Pow},
      {"atan2", Atan2},
      {"and", And},
      {"or", Or},
      {"xor", Xor},
      {"shift_left", ShiftLeft},
      {"shift_right_arithmetic", ShiftRightArithmetic},
      {"shift_right_logical", ShiftRightLogical},
      {"complex", Complex},
      {"eq", Eq},
      {"ne", Ne},
      {"lt", Lt},
      {"le", Le},
      {"gt", Gt},
      {"ge", Ge},
  };
  for (auto [name, f] : binary) {
    PrintForEachType(name, [f = f](Builder& b, DType t) -> Values {
      Value x = P(b, t, {2, 3});
      return {f(x, P(b, t, {2, 3}))};
    });
  }
  using Unary = Value (*)(Value);
  const std::pair<const char*, Unary> unary[] = {
      {"negate", Neg},
      {"abs", Abs},
      {"sign", Sign},
      {"exponential", Exp},
      {"exponential_minus_one", Expm1},
      {"log", Log},
      {"log_plus_one", Log1p},
      {"sqrt", Sqrt},
      {"rsqrt", Rsqrt},
      {"cbrt", Cbrt},
      {"tanh", Tanh},
      {"logistic", Logistic},
      {"sine", Sin},
      {"cosine", Cos},
      {"tan", Tan},
      {"ceil", Ceil},
      {"floor", Floor},
      {"round_nearest_even", RoundNearestEven},
      {"round_nearest_afz", RoundNearestAfz},
      {"not", Not},
      {"popcnt", Popcnt},
      {"count_leading_zeros", Clz},
      {"real", Real},
      {"imag", Imag},
      {"is_finite", IsFinite},
  };
  for (auto [name, f] : unary) {
    PrintForEachType(name, [f = f](Builder& b, DType t) -> Values { return {f(P(b, t, {2, 3}))}; });
  }
  for (int i = 0; i < kNumDTypes; ++i) {
    auto to = static_cast<DType>(i);
    PrintForEachType("convert_to_" + NameOf(to),
                     [to](Builder& b, DType t) -> Values { return {Convert(P(b, t, {4}), to)}; });
    for (int64_t last : {1, 2, 4, 8}) {
      PrintForEachType("bitcast_" + std::to_string(last) + "_to_" + NameOf(to),
                       [&](Builder& b, DType t) -> Values {
                         return {BitcastConvert(P(b, t, {3, last}), to)};
                       });
    }
  }
  PrintForEachType("select", [](Builder& b, DType t) -> Values {
    Value pred = P(b, DType::kBool, {2, 3});
    Value scalar = P(b, DType::kBool, {});
    Value x = P(b, t, {2, 3});
    Value y = P(b, t, {2, 3});
    return {Select(pred, x, y), Select(scalar, x, y)};
  });
  PrintForEachType("clamp", [](Builder& b, DType t) -> Values {
    Value low = P(b, t, {});
    Value x = P(b, t, {2, 3});
    return {Clamp(low, x, P(b, t, {2, 3}))};
  });
  PrintForEachType("reduce_precision", [](Builder& b, DType t) -> Values {
    return {ReducePrecision(P(b, t, {2, 3}), 5, 2)};
  });
  Print("round_to_halves", [](Builder& b) -> Values {
    Value x = P(b, DType::kC64, {16});
    Values out;
    for (double scale : {1.0, 0x1p-14, 0x1p-18, 0x1p-24, 0x1p17}) {
      out.push_back(RoundToHalves(Mul(x, FullLike(x, scale))));
    }
    return out;
  });
}

void Constants() {
  PrintForEachType("scalar", [](Builder& b, DType t) -> Values {
    return {Scalar(b, t, 0), Scalar(b, t, 1), Scalar(b, t, 2.5)};
  });
  PrintForEachType("scalar_negative", [](Builder& b, DType t) -> Values {
    return {Scalar(b, t, -0.0), Scalar(b, t, -3)};
  });
  PrintForEachType("scalar_special", [](Builder& b, DType t) -> Values {
    return {Scalar(b, t, INFINITY), Scalar(b, t, -INFINITY), Scalar(b, t, NAN),
            Scalar(b, t, 1e-40),    Scalar(b, t, 1e300),     Scalar(b, t, 0.1)};
  });
  PrintForEachType("scalar_int", [](Builder& b, DType t) -> Values {
    return {ScalarInt(b, t, -1), ScalarInt(b, t, 100)};
  });
  PrintForEachType("scalar_complex", [](Builder& b, DType t) -> Values {
    return {ScalarComplex(b, t, {1.5, -2}), ScalarComplex(b, t, {NAN, INFINITY})};
  });
  PrintForEachType("limits", [](Builder& b, DType t) -> Values {
    return {MinValue(b, t), MaxValue(b, t), LowestValue(b, t), MaxFiniteValue(b, t)};
  });
  PrintForEachType("full", [](Builder& b, DType t) -> Values {
    Value x = Full(b, {t, {2, 3}}, 1);
    return {x, FullInt(b, {t, {0, 2}}, 7), FullLike(x, 3)};
  });
  PrintForEachType("iota", [](Builder& b, DType t) -> Values {
    return {Iota(b, {t, {2, 3}}, 1), Iota(b, {t, {0}}, 0)};
  });
  PrintForEachType("constant", [](Builder& b, DType t) -> Values {
    std::vector<unsigned char> bytes(64 * ByteSize(t));
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(t == DType::kBool ? i % 3 == 0 : i * 37 + 11);
    }
    std::vector<unsigned char> same(6 * ByteSize(t));
    for (size_t i = 0; i < same.size(); ++i) same[i] = bytes[i % ByteSize(t)];
    return {Constant(b, {t, {8, 8}}, bytes.data()), Constant(b, {t, {2, 3}}, bytes.data()),
            Constant(b, {t, {3, 2}}, same.data()), Constant(b, {t, {}}, bytes.data()),
            Constant(b, {t, {3, 0}}, bytes.data())};
  });
  Print("constant_special/f32", [](Builder& b) -> Values {
    const float values[] = {NAN, INFINITY, -INFINITY, -0.0F, 1e-45F, 3.4028235e38F, 0.1F, 1.0F};
    Values out;
    for (const float& v : values) out.push_back(Constant(b, {DType::kF32, {}}, &v));
    out.push_back(Constant(b, {DType::kF32, {8}}, values));
    return out;
  });
}

void Movement() {
  PrintForEachType("movement", [](Builder& b, DType t) -> Values {
    Value x = P(b, t, {2, 1, 3});
    return {BroadcastInDim(x, {2, 4, 3, 5}, {0, 1, 2}), BroadcastTo(x, {7, 2, 4, 3}),
            Reshape(x, {3, 2}), Transpose(x, {2, 0, 1}), Reverse(x, {0, 2})};
  });
  Print("transpose", [](Builder& b) -> Values { return {Transpose(PF(b, {2, 3, 4}), {2, 0, 1})}; });
  Print("broadcast", [](Builder& b) -> Values { return {BroadcastTo(PF(b, {3, 1}), {2, 3, 4})}; });
  Print("reshape_empty", [](Builder& b) -> Values {
    return {Reshape(PF(b, {0, 3}), {5, 0}), Reshape(PF(b, {1, 1}), {})};
  });
  Print("slice", [](Builder& b) -> Values {
    Value x = PF(b, {6, 5});
    return {Slice(x, {1, 0}, {6, 5}, {2, 3}), SliceDim(x, 1, 2, 4), SliceDim(x, 0, 3, 3)};
  });
  Print("concatenate", [](Builder& b) -> Values {
    Value x = PF(b, {2, 3});
    return {Concatenate({x, PF(b, {2, 1}), PF(b, {2, 0})}, 1)};
  });
  Print("pad", [](Builder& b) -> Values {
    Value x = PF(b, {3, 4});
    return {Pad(x, PF(b, {}), {1, -1}, {2, 0}, {1, 0})};
  });
  Print("reverse", [](Builder& b) -> Values { return {Reverse(PF(b, {3, 4}), {1})}; });
  Print("dynamic_slice", [](Builder& b) -> Values {
    Value x = PF(b, {5, 4});
    const Value starts[] = {Index(b, {}), ScalarInt(b, DType::kS32, 9)};
    return {DynamicSlice(x, starts, {2, 3}), DynamicUpdateSlice(x, PF(b, {2, 2}), starts)};
  });
  Print("gather_rows", [](Builder& b) -> Values {
    Value x = PF(b, {6, 4});
    return {Gather(x, Index(b, {2, 3}), {{2}, {0}, {}, {}, {0}, 2}, {1, 4})};
  });
  Print("gather_batched", [](Builder& b) -> Values {
    Value x = PF(b, {2, 6});
    return {Gather(x, Index(b, {2, 3}), {{}, {1}, {0}, {0}, {1}, 2}, {1, 1}, true)};
  });
  auto add = [](Builder&, std::span<const Value> v) { return Values{Add(v[0], v[1])}; };
  Print("scatter_add_rows", [add](Builder& b) -> Values {
    Value x = PF(b, {6, 4});
    Value i = Index(b, {3, 1});
    return {Scatter(x, i, PF(b, {3, 4}), {{1}, {0}, {}, {}, {0}, 1}, add)};
  });
  Print("scatter_batched", [add](Builder& b) -> Values {
    Value x = PF(b, {2, 6});
    Value i = Index(b, {2, 3});
    return {Scatter(x, i, PF(b, {2, 3}), {{}, {1}, {0}, {0}, {1}, 2}, add, true, true)};
  });
  Print("scatter_pair", [](Builder& b) -> Values {
    const Value inputs[] = {PF(b, {6}), P(b, DType::kS64, {6})};
    Value i = Index(b, {3, 1});
    const Value updates[] = {PF(b, {3}), P(b, DType::kS64, {3})};
    return Scatter(inputs, i, updates, {{}, {0}, {}, {}, {0}, 1},
                   [](Builder&, std::span<const Value> v) {
                     return Values{v[2], v[3]};
                   });
  });
}

void Reductions() {
  const std::pair<const char*, Reducer> reducers[] = {
      {"sum", Reducer::kSum}, {"prod", Reducer::kProd}, {"max", Reducer::kMax},
      {"min", Reducer::kMin}, {"and", Reducer::kAnd},   {"or", Reducer::kOr},
  };
  for (auto [name, reducer] : reducers) {
    PrintForEachType(std::string("reduce_") + name, [r = reducer](Builder& b, DType t) -> Values {
      Value x = P(b, t, {2, 3, 4});
      return {Reduce(x, {0, 2}, r), Reduce(x, {}, r), Reduce(P(b, t, {0, 2}), {0}, r)};
    });
  }
  Print("reduce_window_max", [](Builder& b) -> Values {
    Value x = PF(b, {6, 6});
    return {ReduceWindow(x, MinValue(b, DType::kF32), {3, 2}, {2, 1}, {1, 1}, {1, 2}, {1, 0},
                         {1, 0}, Reducer::kMax)};
  });
  Print("cumsum", [](Builder& b) -> Values {
    Value x = PF(b, {2, 7});
    return {ReduceWindow(x, Scalar(b, DType::kF32, 0), {1, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 6},
                         {0, 0}, Reducer::kSum)};
  });
  auto argmax = [](Builder&, std::span<const Value> v) {
    Value first = Ge(v[0], v[2]);
    return Values{Select(first, v[0], v[2]), Select(first, v[1], v[3])};
  };
  Print("argmax", [argmax](Builder& b) -> Values {
    Value x = PF(b, {3, 5});
    const Value inputs[] = {x, Iota(b, {DType::kS64, {3, 5}}, 1)};
    const Value inits[] = {MinValue(b, DType::kF32), ScalarInt(b, DType::kS64, 0)};
    return Reduce(inputs, inits, {1}, argmax);
  });
  Print("argmax_window", [argmax](Builder& b) -> Values {
    Value x = PF(b, {3, 5});
    const Value inputs[] = {x, Iota(b, {DType::kS32, {3, 5}}, 1)};
    const Value inits[] = {MinValue(b, DType::kF32), ScalarInt(b, DType::kS32, 0)};
    return ReduceWindow(inputs, inits, {1, 2}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, argmax);
  });
  Print("scalar_window", [](Builder& b) -> Values {
    return {
        ReduceWindow(PF(b, {}), Scalar(b, DType::kF32, 0), {}, {}, {}, {}, {}, {}, Reducer::kSum)};
  });
  Print("select_and_scatter", [](Builder& b) -> Values {
    Value x = PF(b, {4, 4});
    return {SelectAndScatter(x, PF(b, {2, 2}), Scalar(b, DType::kF32, 0), {2, 2}, {2, 2}, {0, 0},
                             {0, 0})};
  });
  Print("sort", [](Builder& b) -> Values {
    Value x = PF(b, {3, 5});
    const Value operands[] = {x, Iota(b, {DType::kS64, {3, 5}}, 1)};
    return Sort(operands, 1, true,
                [](Builder&, std::span<const Value> v) { return Values{Lt(v[0], v[1])}; });
  });
}

void Dots() {
  PrintForEachType("dot", [](Builder& b, DType t) -> Values {
    Value x = P(b, t, {5, 2, 3});
    return {DotGeneral(x, P(b, t, {5, 3, 4}), {0}, {0}, {2}, {1})};
  });
  Print("dot_accumulate", [](Builder& b) -> Values {
    Value x = P(b, DType::kBF16, {2, 3});
    Value y = P(b, DType::kBF16, {3, 4});
    return {DotGeneral(x, y, {}, {}, {1}, {0}, Precision::kDefault, DType::kF32),
            DotGeneral(x, y, {}, {}, {1}, {0}, Precision::kHigh)};
  });
  Print("dot_outer", [](Builder& b) -> Values {
    Value x = PF(b, {2});
    return {DotGeneral(x, PF(b, {3}), {}, {}, {}, {})};
  });
  PrintForEachType("convolution", [](Builder& b, DType t) -> Values {
    Value x = P(b, t, {2, 4, 8, 9});
    return {Convolution(x, P(b, t, {6, 2, 3, 3}), ConvDims::Default(2), {2, 1}, {1, 0}, {1, 1},
                        {1, 1}, {1, 2}, 2)};
  });
  Print("convolution_transposed", [](Builder& b) -> Values {
    Value x = P(b, DType::kBF16, {2, 4, 8});
    ConvDims dims = ConvDims::Default(1);
    dims.kernel_in = 0;
    dims.kernel_out = 1;
    return {Convolution(x, P(b, DType::kBF16, {4, 5, 3}), dims, {1}, {2}, {2}, {2}, {1}, 1, 1,
                        {true}, Precision::kDefault, DType::kF32)};
  });
  Print("convolution_weight_gradient", [](Builder& b) -> Values {
    // [N, C, X] as [C of batch, N of feature]: the roles of batch and feature swap.
    Value x = PF(b, {2, 4, 8});
    return {Convolution(x, PF(b, {2, 6, 6}), {1, 0, {2}, 0, 1, {2}, 1, 0, {2}}, {1}, {0}, {0}, {1},
                        {1})};
  });
  Print("convolution_batch_groups", [](Builder& b) -> Values {
    Value x = PF(b, {4, 3, 8});
    return {Convolution(x, PF(b, {6, 3, 3}), ConvDims::Default(1), {1}, {0}, {0}, {1}, {1}, 1, 2)};
  });
  Print("convolution_pointless", [](Builder& b) -> Values {
    Value x = PF(b, {4, 3});
    return {Convolution(x, PF(b, {6, 3}), ConvDims::Default(0), {}, {}, {}, {}, {})};
  });
}

void Collectives() {
  PrintForEachType("all_reduce", [](Builder& b, DType t) -> Values {
    Value x = P(b, t, {4, 3});
    return {AllReduce(x, {{0, 1}, {2, 3}}, Reducer::kSum),
            AllReduce(x, {{0, 2, 3}, {1}}, Reducer::kProd)};
  });
  PrintForEachType("collectives", [](Builder& b, DType t) -> Values {
    Value x = P(b, t, {4, 3});
    return {AllGather(x, 1, {{0, 1}, {3, 2}}), ReduceScatter(x, 0, {{0, 1}, {2, 3}}, Reducer::kSum),
            AllToAll(x, 0, {{0, 1, 2, 3}}), CollectivePermute(x, {{0, 1}, {1, 2}})};
  });
  Print("replica_id", [](Builder& b) -> Values { return {ReplicaId(b)}; });
}

void Control() {
  Print("while", [](Builder& b) -> Values {
    Value x = PF(b, {3});
    Value step = PF(b, {3});
    const Value inits[] = {ScalarInt(b, DType::kS32, 0), x};
    return While(
        inits,
        [](Builder& b, std::span<const Value> v) {
          return Values{Lt(v[0], ScalarInt(b, DType::kS32, 5))};
        },
        [&](Builder& b, std::span<const Value> v) {
          return Values{Add(v[0], ScalarInt(b, DType::kS32, 1)), Add(v[1], step)};
        });
  });
  Print("if", [](Builder& b) -> Values {
    Value x = PF(b, {3});
    return If(
        Gt(Reduce(x, {0}, Reducer::kSum), Scalar(b, DType::kF32, 0)),
        [&](Builder&, std::span<const Value>) {
          return Values{Neg(x), x};
        },
        [&](Builder&, std::span<const Value>) {
          return Values{x, FullLike(x, 1)};
        });
  });
  Print("nested", [](Builder& b) -> Values {
    Value x = PF(b, {3});
    auto twice = [](Builder& b, std::span<const Value> v) {
      Value positive = Gt(Reduce(v[0], {0}, Reducer::kMax), Scalar(b, DType::kF32, 100));
      return If(
          positive, [&](Builder&, std::span<const Value>) { return Values{v[0]}; },
          [&](Builder&, std::span<const Value>) { return Values{Add(v[0], v[0])}; });
    };
    return While(
        std::span(&x, 1),
        [](Builder& b, std::span<const Value> v) {
          return Values{Lt(Reduce(v[0], {0}, Reducer::kSum), Scalar(b, DType::kF32, 50))};
        },
        twice);
  });
  Print("optimization_barrier", [](Builder& b) -> Values {
    const Value xs[] = {PF(b, {3}), P(b, DType::kBool, {})};
    return OptimizationBarrier(xs);
  });
  Print("custom_call", [](Builder& b) -> Values {
    const Value inputs[] = {PF(b, {2, 3}), Token(b)};
    const Shape results[] = {{DType::kF32, {2, 3}}, {DType::kS64, {}}};
    const Attrs attrs = {{"flag", true},
                         {"small", int32_t{3}},
                         {"big", int64_t{-5}},
                         {"single", 0.1F},
                         {"double", 1e300},
                         {"text", std::string("a \"quoted\" \\ line\n")},
                         {"list", std::vector<int64_t>{1, 2}},
                         {"empty list", std::vector<int64_t>{}}};
    Values out = CustomCall(b, "some.handler", inputs, results, attrs, true,
                            {.returns_token = true, .aliases = {{0, 0}}});
    const Value again[] = {out[0], out[2]};
    const Shape one[] = {{DType::kF32, {2, 3}}};
    Values last = CustomCall(b, "other", again, one, {}, false, {.aliases = {{0, 0}}});
    return {last[0], out[1]};
  });
  PrintForEachType("cholesky", [](Builder& b, DType t) -> Values {
    Value x = P(b, t, {2, 3, 3});
    return {Cholesky(x, true), Cholesky(x, false)};
  });
  PrintForEachType("triangular_solve", [](Builder& b, DType t) -> Values {
    Value a = P(b, t, {2, 3, 3});
    return {TriangularSolve(a, P(b, t, {2, 3, 4}), true, true, false),
            TriangularSolve(a, P(b, t, {2, 4, 3}), false, false, true, TransposeKind::kAdjoint)};
  });
  PrintForEachType("fft", [](Builder& b, DType t) -> Values {
    Value x = P(b, t, {2, 4, 6});
    if (!IsComplex(t)) return {Fft(x, FftType::kRfft, {4, 6})};
    return {Fft(x, FftType::kFft, {6}), Fft(x, FftType::kIfft, {2, 4, 6}),
            Fft(x, FftType::kIrfft, {10})};
  });
}

void Modules() {
  Print("parameters", [](Builder& b) -> Values {
    b.SetLocation({"aten::add", "dir \"x\"/é\\train.py", 12});
    Value x = b.Parameter({DType::kF32, {2}}, true);
    Value y = b.Parameter({DType::kF32, {2}}, true, 0);
    Value sum = Add(x, y);
    b.SetLocation({"", "train.py", 13});
    Value total = Reduce(sum, {0}, Reducer::kSum);
    b.SetLocation({"aten::neg", "", 0});
    return {Neg(sum), total, b.Parameter({DType::kBool, {}})};
  });
  Print("no_outputs", [](Builder& b) -> Values {
    b.Parameter({DType::kF32, {}});
    return {};
  });
}

}  // namespace
}  // namespace torch_xla::hlo

int main() {
  using namespace torch_xla::hlo;
  Elementwise();
  Constants();
  Movement();
  Reductions();
  Dots();
  Collectives();
  Control();
  Modules();
  return 0;
}
