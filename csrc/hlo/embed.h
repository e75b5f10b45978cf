// StableHLO that a user wrote, made part of a module of ours.
#pragma once

#include "hlo/builder.h"

namespace torch_xla::hlo {

// The functions of a module's text as private ones of another module.
struct Embedded {
  std::string aliases;    // for the head of the file: "#u0_map = ..."
  std::string functions;  // for the module's body
};

// Every function and every alias that `module` defines gets `prefix` before its name: @main becomes
// @"<prefix>main". The rest stays as it is. Throws kInvalidArgument when the braces do not match.
Embedded Embed(std::string_view module, std::string_view prefix);

// Calls @main of `module`, whose functions become part of b's module, once for all calls.
std::vector<Value> CallModule(Builder& b, std::string_view module, std::span<const Value> operands,
                              std::span<const Shape> results);

}  // namespace torch_xla::hlo
