#include "base/shape.h"

namespace torch_xla {

int64_t Product(Span dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

std::string ToString(Span dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) out += ", ";
    out += std::to_string(dims[i]);
  }
  return out + "]";
}

std::string ToString(const Shape& shape) {
  std::string out = "tensor<";
  for (int64_t d : shape.dims) {
    out += std::to_string(d);
    out += 'x';
  }
  return out + HloName(shape.dtype) + ">";
}

}  // namespace torch_xla
