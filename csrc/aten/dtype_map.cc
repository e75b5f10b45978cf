#include "aten/dtype_map.h"

#include <c10/util/Exception.h>

#include <array>

namespace torch_xla {
namespace {

constexpr at::ScalarType kScalarTypes[] = {at::kBool,
                                           at::kChar,
                                           at::kShort,
                                           at::kInt,
                                           at::kLong,
                                           at::kByte,
                                           at::kUInt16,
                                           at::kUInt32,
                                           at::kUInt64,
                                           at::kFloat8_e4m3fn,
                                           at::kFloat8_e5m2,
                                           at::kFloat8_e4m3fnuz,
                                           at::kFloat8_e5m2fnuz,
                                           at::kHalf,
                                           at::kBFloat16,
                                           at::kFloat,
                                           at::kDouble,
                                           at::kComplexFloat,
                                           at::kComplexDouble,
                                           at::kComplexHalf};
static_assert(std::size(kScalarTypes) == kNumDTypes);

// By ScalarType; -1 where XLA has no such type.
constexpr auto kDTypes = [] {
  std::array<int8_t, static_cast<size_t>(at::ScalarType::NumOptions)> table{};
  for (int8_t& entry : table) entry = -1;
  for (int i = 0; i < kNumDTypes; ++i) {
    table[static_cast<size_t>(kScalarTypes[i])] = static_cast<int8_t>(i);
  }
  return table;
}();

}  // namespace

DType ToDType(at::ScalarType type) {
  auto i = static_cast<size_t>(type);
  TORCH_CHECK_TYPE(i < kDTypes.size() && kDTypes[i] >= 0, "XLA devices have no dtype ",
                   at::toString(type));
  return static_cast<DType>(kDTypes[i]);
}

at::ScalarType ToScalarType(DType type) { return kScalarTypes[static_cast<int>(type)]; }

}  // namespace torch_xla
