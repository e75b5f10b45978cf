#include "hlo/dot.h"

#include "base/error.h"
#include "hlo/text.h"

namespace torch_xla::hlo {

namespace {

void AddPrecision(Props& props, DType t, Precision precision) {
  // Means nothing for integers, and is the default anyway for kDefault.
  if ((!IsFloat(t) && !IsComplex(t)) || precision == Precision::kDefault) return;
  const char* one = precision == Precision::kHighest ? "#stablehlo<precision HIGHEST>"
                                                     : "#stablehlo<precision HIGH>";
  std::string both = "[";
  both += one;
  both += ", ";
  both += one;
  both += ']';
  props.Raw("precision_config", both);
}

void AppendField(std::string& out, const char* name, const Dims& v) {
  if (v.empty()) return;
  if (out.back() != '<') out += ", ";
  out += name;
  out += " = ";
  AppendList(out, v);
}

}  // namespace

Value DotGeneral(Value lhs, Value rhs, const Dims& lhs_batch, const Dims& rhs_batch,
                 const Dims& lhs_contract, const Dims& rhs_contract, Precision precision,
                 std::optional<DType> result) {
  constexpr std::string_view op = "dot_general";
  CheckTensors(op, {lhs, rhs});
  HLO_CHECK(lhs.dtype() == rhs.dtype(), op, "operand types of ", ToString(lhs.shape()), " and ",
            ToString(rhs.shape()), " differ");
  CheckDims(op, "lhs batch dimensions", lhs_batch, lhs.rank());
  CheckDims(op, "rhs batch dimensions", rhs_batch, rhs.rank());
  CheckDims(op, "lhs contracting dimensions", lhs_contract, lhs.rank());
  CheckDims(op, "rhs contracting dimensions", rhs_contract, rhs.rank());
  CheckCount(op, "rhs batch dimensions", rhs_batch, static_cast<int64_t>(lhs_batch.size()));
  CheckCount(op, "rhs contracting dimensions", rhs_contract,
             static_cast<int64_t>(lhs_contract.size()));
  Shape out{result.value_or(lhs.dtype()), {}};
  for (size_t i = 0; i < lhs_batch.size(); ++i) {
    HLO_CHECK(lhs.dim(lhs_batch[i]) == rhs.dim(rhs_batch[i]), op, "batch dimensions ", lhs_batch[i],
              " of ", ToString(lhs.shape()), " and ", rhs_batch[i], " of ", ToString(rhs.shape()),
              " differ");
    out.dims.push_back(lhs.dim(lhs_batch[i]));
  }
  for (size_t i = 0; i < lhs_contract.size(); ++i) {
    HLO_CHECK(lhs.dim(lhs_contract[i]) == rhs.dim(rhs_contract[i]), op, "contracting dimensions ",
              lhs_contract[i], " of ", ToString(lhs.shape()), " and ", rhs_contract[i], " of ",
              ToString(rhs.shape()), " differ");
    HLO_CHECK(!Contains(lhs_batch, lhs_contract[i]) && !Contains(rhs_batch, rhs_contract[i]), op,
              "a dimension is both batch and contracting");
  }
  for (int64_t i = 0; i < lhs.rank(); ++i) {
    if (!Contains(lhs_batch, i) && !Contains(lhs_contract, i)) out.dims.push_back(lhs.dim(i));
  }
  for (int64_t i = 0; i < rhs.rank(); ++i) {
    if (!Contains(rhs_batch, i) && !Contains(rhs_contract, i)) out.dims.push_back(rhs.dim(i));
  }
  std::string numbers = "#stablehlo.dot<";
  AppendField(numbers, "lhs_batching_dimensions", lhs_batch);
  AppendField(numbers, "rhs_batching_dimensions", rhs_batch);
  AppendField(numbers, "lhs_contracting_dimensions", lhs_contract);
  AppendField(numbers, "rhs_contracting_dimensions", rhs_contract);
  numbers += '>';
  Props props;
  props.Raw("dot_dimension_numbers", numbers);
  AddPrecision(props, lhs.dtype(), precision);
  return lhs.builder().Emit(op, {lhs, rhs}, props, out);
}

ConvDims ConvDims::Default(int64_t spatial_rank) {
  ConvDims dims;
  for (int64_t i = 0; i < spatial_rank; ++i) {
    dims.input_spatial.push_back(i + 2);
    dims.kernel_spatial.push_back(i + 2);
    dims.out_spatial.push_back(i + 2);
  }
  return dims;
}

namespace {

// All dimensions of one side, each once.
void CheckSide(const char* what, int64_t first, int64_t second, const Dims& spatial, int64_t rank) {
  Dims all = spatial;
  all.push_back(first);
  all.push_back(second);
  CheckCount("convolution", what, all, rank);
  CheckDims("convolution", what, all, rank);
}

// "[b, f, 0, 1]"
void AppendSide(std::string& out, int64_t first, char first_name, int64_t second, char second_name,
                const Dims& spatial) {
  auto rank = static_cast<int64_t>(spatial.size()) + 2;
  for (int64_t i = 0; i < rank; ++i) {
    out += i == 0 ? "[" : ", ";
    if (i == first) {
      out += first_name;
    } else if (i == second) {
      out += second_name;
    } else {
      AppendInt(out, std::find(spatial.begin(), spatial.end(), i) - spatial.begin());
    }
  }
  out += ']';
}

void CheckGroups(Value lhs, Value rhs, const ConvDims& dims, int64_t feature_groups,
                 int64_t batch_groups) {
  constexpr std::string_view op = "convolution";
  HLO_CHECK(feature_groups > 0 && batch_groups > 0 && (feature_groups == 1 || batch_groups == 1),
            op, feature_groups, " feature groups and ", batch_groups, " batch groups");
  HLO_CHECK(lhs.dim(dims.input_feature) == rhs.dim(dims.kernel_in) * feature_groups, op,
            "features of ", ToString(lhs.shape()), " and ", ToString(rhs.shape()),
            " do not fit with ", feature_groups, " groups");
  HLO_CHECK(rhs.dim(dims.kernel_out) % feature_groups == 0 &&
                rhs.dim(dims.kernel_out) % batch_groups == 0,
            op, "output features of ", ToString(rhs.shape()), " do not divide into groups");
  HLO_CHECK(lhs.dim(dims.input_batch) % batch_groups == 0, op, "batch of ", ToString(lhs.shape()),
            " does not divide into ", batch_groups, " groups");
}

}  // namespace

Value Convolution(Value lhs, Value rhs, const ConvDims& dims, const Dims& strides,
                  const Dims& pad_low, const Dims& pad_high, const Dims& lhs_dilation,
                  const Dims& rhs_dilation, int64_t feature_group_count, int64_t batch_group_count,
                  const std::vector<bool>& window_reversal, Precision precision,
                  std::optional<DType> result) {
  constexpr std::string_view op = "convolution";
  CheckTensors(op, {lhs, rhs});
  HLO_CHECK(lhs.dtype() == rhs.dtype(), op, "operand types of ", ToString(lhs.shape()), " and ",
            ToString(rhs.shape()), " differ");
  HLO_CHECK(lhs.rank() >= 2 && lhs.rank() == rhs.rank(), op, "ranks of ", ToString(lhs.shape()),
            " and ", ToString(rhs.shape()), " do not fit");
  int64_t rank = lhs.rank();
  CheckSide("input dimensions", dims.input_batch, dims.input_feature, dims.input_spatial, rank);
  CheckSide("kernel dimensions", dims.kernel_in, dims.kernel_out, dims.kernel_spatial, rank);
  CheckSide("output dimensions", dims.out_batch, dims.out_feature, dims.out_spatial, rank);
  CheckGroups(lhs, rhs, dims, feature_group_count, batch_group_count);
  size_t spatial = dims.input_spatial.size();
  HLO_CHECK(window_reversal.empty() || window_reversal.size() == spatial, op,
            "window_reversal should have ", spatial, " entries");

  Dims input(spatial, 0);
  Window window{Dims(spatial, 0), strides, pad_low, pad_high, lhs_dilation, rhs_dilation};
  for (size_t i = 0; i < spatial; ++i) {
    input[i] = lhs.dim(dims.input_spatial[i]);
    window.size[i] = rhs.dim(dims.kernel_spatial[i]);
  }
  Dims slid = SlideWindow(op, input, window);
  Shape out{result.value_or(lhs.dtype()), Dims(lhs.dims().size(), 0)};
  out.dims[static_cast<size_t>(dims.out_batch)] = lhs.dim(dims.input_batch) / batch_group_count;
  out.dims[static_cast<size_t>(dims.out_feature)] = rhs.dim(dims.kernel_out);
  for (size_t i = 0; i < spatial; ++i) {
    out.dims[static_cast<size_t>(dims.out_spatial[i])] = slid[i];
  }

  std::string numbers = "#stablehlo.conv<";
  AppendSide(numbers, dims.input_batch, 'b', dims.input_feature, 'f', dims.input_spatial);
  numbers += 'x';
  AppendSide(numbers, dims.kernel_in, 'i', dims.kernel_out, 'o', dims.kernel_spatial);
  numbers += "->";
  AppendSide(numbers, dims.out_batch, 'b', dims.out_feature, 'f', dims.out_spatial);
  numbers += '>';
  Props props;
  props.Array("window_strides", strides)
      .Padding(pad_low, pad_high)
      .Array("lhs_dilation", lhs_dilation)
      .Array("rhs_dilation", rhs_dilation);
  if (!window_reversal.empty()) {
    std::string reversal = "array<i1: ";
    for (size_t i = 0; i < spatial; ++i) {
      if (i != 0) reversal += ", ";
      reversal += window_reversal[i] ? "true" : "false";
    }
    reversal += '>';
    props.Raw("window_reversal", reversal);
  }
  props.Raw("dimension_numbers", numbers)
      .Int("feature_group_count", feature_group_count)
      .Int("batch_group_count", batch_group_count);
  AddPrecision(props, lhs.dtype(), precision);
  return lhs.builder().Emit(op, {lhs, rhs}, props, out);
}

}  // namespace torch_xla::hlo
