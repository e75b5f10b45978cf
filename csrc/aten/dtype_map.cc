#include "aten/dtype_map.h"

#include <c10/util/Exception.h>

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
                                           at::kComplexDouble};
static_assert(std::size(kScalarTypes) == kNumDTypes);

}  // namespace

DType ToDType(at::ScalarType type) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (kScalarTypes[i] == type) return static_cast<DType>(i);
  }
  TORCH_CHECK_TYPE(false, "XLA devices have no dtype ", at::toString(type));
}

at::ScalarType ToScalarType(DType type) { return kScalarTypes[static_cast<int>(type)]; }

}  // namespace torch_xla
