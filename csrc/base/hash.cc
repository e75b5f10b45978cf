#include "base/hash.h"

#include <cstdio>

namespace torch_xla {

std::string ToString(const Hash& hash) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.hi),
                static_cast<unsigned long long>(hash.lo));
  return text;
}

}  // namespace torch_xla
