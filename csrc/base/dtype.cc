#include "base/dtype.h"

namespace torch_xla {
namespace {

struct Row {
  const char* hlo;
  const char* torch;
  size_t bytes;
};

// In the order of DType.
constexpr Row kRows[] = {
    {"i1", "Bool", 1},
    {"i8", "Char", 1},
    {"i16", "Short", 2},
    {"i32", "Int", 4},
    {"i64", "Long", 8},
    {"ui8", "Byte", 1},
    {"ui16", "UInt16", 2},
    {"ui32", "UInt32", 4},
    {"ui64", "UInt64", 8},
    {"f8E4M3FN", "Float8_e4m3fn", 1},
    {"f8E5M2", "Float8_e5m2", 1},
    {"f8E4M3FNUZ", "Float8_e4m3fnuz", 1},
    {"f8E5M2FNUZ", "Float8_e5m2fnuz", 1},
    {"f16", "Half", 2},
    {"bf16", "BFloat16", 2},
    {"f32", "Float", 4},
    {"f64", "Double", 8},
    {"complex<f32>", "ComplexFloat", 8},
    {"complex<f64>", "ComplexDouble", 16},
    {"complex<f32>", "ComplexHalf", 8},
};
static_assert(sizeof(kRows) / sizeof(kRows[0]) == kNumDTypes);

}  // namespace

size_t ByteSize(DType t) { return kRows[static_cast<int>(t)].bytes; }
const char* HloName(DType t) { return kRows[static_cast<int>(t)].hlo; }
const char* TorchName(DType t) { return kRows[static_cast<int>(t)].torch; }

}  // namespace torch_xla
