#include "hlo/cast.h"

#include "hlo/constant.h"
#include "hlo/elementwise.h"

namespace torch_xla::hlo {

Value ConvertTo(Value x, DType to) {
  if (x.dtype() == to) return x;
  Builder& b = x.builder();
  if (to == DType::kBool) {
    Value zero = IsComplex(x.dtype()) ? FullLike(x, 0) : Full(b, x.shape(), 0);
    return Ne(x, zero);
  }
  if (IsComplex(x.dtype()) && !IsComplex(to)) x = Real(x);
  if (IsComplex(to) && !IsComplex(x.dtype())) {
    Value re = Convert(x, RealPart(to));
    return Complex(re, FullLike(re, 0));
  }
  // Through a wider integer: the result wraps around, as PyTorch's does on CPU.
  if (IsFloat(x.dtype()) && IsInt(to) && ByteSize(to) < 4)
    return Convert(Convert(x, DType::kS32), to);
  if (IsFloat(x.dtype()) && to == DType::kU32) return Convert(Convert(x, DType::kS64), to);
  return Convert(x, to);
}

}  // namespace torch_xla::hlo
