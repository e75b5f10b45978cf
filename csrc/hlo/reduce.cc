#include "hlo/reduce.h"

#include "base/error.h"
#include "hlo/constant.h"
#include "hlo/elementwise.h"
#include "hlo/text.h"

namespace torch_xla::hlo {

Value Apply(Reducer reducer, Value a, Value b) {
  switch (reducer) {
    case Reducer::kSum: return Add(a, b);
    case Reducer::kProd: return Mul(a, b);
    case Reducer::kMax: return Max(a, b);
    case Reducer::kMin: return Min(a, b);
    case Reducer::kAnd: return And(a, b);
    case Reducer::kOr: return Or(a, b);
  }
  Throw(Code::kInternal, "[hlo] unknown reducer");
}

Value Identity(Builder& b, Reducer reducer, DType dtype) {
  switch (reducer) {
    case Reducer::kSum: return Scalar(b, dtype, 0);
    case Reducer::kProd: return Scalar(b, dtype, 1);
    case Reducer::kMax: return MinValue(b, dtype);
    case Reducer::kMin: return MaxValue(b, dtype);
    case Reducer::kAnd: return ScalarInt(b, dtype, -1);  // all ones, also of unsigned and bool
    case Reducer::kOr: return ScalarInt(b, dtype, 0);
  }
  Throw(Code::kInternal, "[hlo] unknown reducer");
}

namespace {

Body BodyOf(Reducer reducer) {
  return [reducer](Builder&, std::span<const Value> v) {
    return std::vector<Value>{Apply(reducer, v[0], v[1])};
  };
}

// Inputs of one shape up to dtype, and an init scalar of each.
void CheckReduction(std::string_view op, std::span<const Value> inputs,
                    std::span<const Value> inits) {
  HLO_CHECK(!inputs.empty() && inputs.size() == inits.size(), op, inputs.size(), " inputs and ",
            inits.size(), " inits");
  CheckTensors(op, inputs);
  CheckTensors(op, inits);
  for (size_t i = 0; i < inputs.size(); ++i) {
    HLO_CHECK(inputs[i].dims() == inputs[0].dims(), op, "operand shapes ",
              ToString(inputs[0].shape()), " and ", ToString(inputs[i].shape()), " differ");
    HLO_CHECK(inits[i].shape() == (Shape{inputs[i].dtype(), {}}), op, "the init ",
              ToString(inits[i].shape()), " should be a scalar of the type of ",
              ToString(inputs[i].shape()));
  }
}

// (accumulators..., elements...) -> accumulators
Region ReductionBody(std::string_view op, std::span<const Value> inputs, const Body& body) {
  std::vector<Type> scalars = ScalarTypesOf(inputs);
  std::vector<Type> arguments = scalars;
  arguments.insert(arguments.end(), scalars.begin(), scalars.end());
  Region region = inputs[0].builder().BuildRegion(op, arguments, body);
  HLO_CHECK(region.results == scalars, op, "the body does not return one scalar for each input");
  return region;
}

std::vector<Value> Join(std::span<const Value> a, std::span<const Value> b) {
  std::vector<Value> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

std::vector<Type> WithDims(std::span<const Value> inputs, const Dims& dims) {
  std::vector<Type> types;
  for (const Value& x : inputs) types.push_back(x.shape().with(dims));
  return types;
}

}  // namespace

Value Reduce(Value x, const Dims& dims, Reducer reducer) {
  CheckTensors("reduce", {x});
  Value init = Identity(x.builder(), reducer, x.dtype());
  return Reduce(std::span(&x, 1), std::span(&init, 1), dims, BodyOf(reducer))[0];
}

std::vector<Value> Reduce(std::span<const Value> inputs, std::span<const Value> inits,
                          const Dims& dims, const Body& body) {
  constexpr std::string_view op = "reduce";
  CheckReduction(op, inputs, inits);
  CheckDims(op, "dimensions", dims, inputs[0].rank());
  Dims out;
  for (int64_t i = 0; i < inputs[0].rank(); ++i) {
    if (!Contains(dims, i)) out.push_back(inputs[0].dim(i));
  }
  Region region = ReductionBody(op, inputs, body);
  return inputs[0].builder().Emit(op, Join(inputs, inits), Props().Array("dimensions", dims),
                                  std::span(&region, 1), WithDims(inputs, out));
}

Value ReduceWindow(Value x, Value init, const Dims& window_dims, const Dims& strides,
                   const Dims& base_dilation, const Dims& window_dilation, const Dims& pad_low,
                   const Dims& pad_high, Reducer reducer) {
  return ReduceWindow(std::span(&x, 1), std::span(&init, 1), window_dims, strides, base_dilation,
                      window_dilation, pad_low, pad_high, BodyOf(reducer))[0];
}

std::vector<Value> ReduceWindow(std::span<const Value> inputs, std::span<const Value> inits,
                                const Dims& window_dims, const Dims& strides,
                                const Dims& base_dilation, const Dims& window_dilation,
                                const Dims& pad_low, const Dims& pad_high, const Body& body) {
  constexpr std::string_view op = "reduce_window";
  CheckReduction(op, inputs, inits);
  Dims out = SlideWindow(op, inputs[0].dims(),
                         {window_dims, strides, pad_low, pad_high, base_dilation, window_dilation});
  Region region = ReductionBody(op, inputs, body);
  Props props;
  props.Array("window_dimensions", window_dims)
      .Array("window_strides", strides)
      .Array("base_dilations", base_dilation)
      .Array("window_dilations", window_dilation)
      .Padding(pad_low, pad_high);
  return inputs[0].builder().Emit(op, Join(inputs, inits), props, std::span(&region, 1),
                                  WithDims(inputs, out));
}

Value SelectAndScatter(Value operand, Value source, Value init, const Dims& window_dims,
                       const Dims& strides, const Dims& pad_low, const Dims& pad_high) {
  auto select = [](Builder&, std::span<const Value> v) {
    return std::vector<Value>{Ge(v[0], v[1])};
  };
  return SelectAndScatter(operand, source, init, window_dims, strides, pad_low, pad_high, select,
                          BodyOf(Reducer::kSum));
}

Value SelectAndScatter(Value operand, Value source, Value init, const Dims& window_dims,
                       const Dims& strides, const Dims& pad_low, const Dims& pad_high,
                       const Body& select, const Body& scatter) {
  constexpr std::string_view op = "select_and_scatter";
  CheckTensors(op, {source});
  CheckReduction(op, std::span(&operand, 1), std::span(&init, 1));
  Dims ones(operand.dims().size(), 1);
  Dims windows =
      SlideWindow(op, operand.dims(), {window_dims, strides, pad_low, pad_high, ones, ones});
  HLO_CHECK(source.shape() == operand.shape().with(windows), op, "the source ",
            ToString(source.shape()), " should be ", ToString(operand.shape().with(windows)));
  Builder& b = operand.builder();
  Type scalar = Shape{operand.dtype(), {}};
  const Type arguments[] = {scalar, scalar};
  Region regions[] = {b.BuildRegion(op, arguments, select), b.BuildRegion(op, arguments, scatter)};
  const Type pred = Shape{DType::kBool, {}};
  HLO_CHECK(regions[0].results == std::vector<Type>{pred}, op, "select does not return a bool");
  HLO_CHECK(regions[1].results == std::vector<Type>{scalar}, op,
            "scatter does not return a scalar of the operand's type");
  Props props;
  props.Array("window_dimensions", window_dims)
      .Array("window_strides", strides)
      .Padding(pad_low, pad_high);
  const Value operands[] = {operand, source, init};
  const Type result = operand.shape();
  return b.Emit(op, operands, props, regions, std::span(&result, 1))[0];
}

std::vector<Value> Sort(std::span<const Value> operands, int64_t dim, bool is_stable,
                        const Body& comparator) {
  constexpr std::string_view op = "sort";
  HLO_CHECK(!operands.empty(), op, "no operands");
  CheckTensors(op, operands);
  std::vector<Type> arguments;
  for (const Value& x : operands) {
    HLO_CHECK(x.dims() == operands[0].dims(), op, "operand shapes ", ToString(operands[0].shape()),
              " and ", ToString(x.shape()), " differ");
    arguments.insert(arguments.end(), 2, Shape{x.dtype(), {}});
  }
  HLO_CHECK(dim >= 0 && dim < operands[0].rank(), op, "dimension ", dim, " is out of range for ",
            ToString(operands[0].shape()));
  Builder& b = operands[0].builder();
  Region region = b.BuildRegion(op, arguments, comparator);
  const Type pred = Shape{DType::kBool, {}};
  HLO_CHECK(region.results == std::vector<Type>{pred}, op, "the comparator does not return a bool");
  Props props;
  props.Int("dimension", dim).Bool("is_stable", is_stable);
  return b.Emit(op, operands, props, std::span(&region, 1), TypesOf(operands));
}

}  // namespace torch_xla::hlo
