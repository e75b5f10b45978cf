// StableHLO that a user wrote, made part of a module of ours.
#pragma once

#include "hlo/builder.h"

namespace torch_xla::hlo {

// The operations of a module's text as part of another module, its functions as private ones.
struct Embedded {
  std::string aliases;    // for the head of the file: "#u0_map = ..."
  std::string functions;  // for the module's body
};

// Every symbol (of a function, a mesh, ...) and every alias that `module` defines gets `prefix`
// before its name: @main becomes @"<prefix>main". The rest, such as the target of a custom_call,
// stays as it is. Throws kInvalidArgument when the brackets do not match, and for operations of the
// module in MLIR's generic form, whose symbols are mere strings.
Embedded Embed(std::string_view module, std::string_view prefix);

// Calls @main of `module`, whose functions become part of b's module, once for all calls.
std::vector<Value> CallModule(Builder& b, std::string_view module, std::span<const Value> operands,
                              std::span<const Shape> results);

}  // namespace torch_xla::hlo
