// Types of a program's parameters and results, and the checks of a launch that rest on them.
//
// A wrong argument that reaches XLA inside a replicated launch leaves the other replicas waiting in
// a rendezvous that ends in abort(); so every argument is checked before the plugin sees it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/shape.h"
#include "pjrt/client.h"

namespace torch_xla::pjrt {

struct Signature {
  std::vector<Shape> parameters;
  std::vector<bool> donatable;  // per parameter: jax.buffer_donor or tf.aliasing_output
  std::vector<Shape> results;
  friend bool operator==(const Signature&, const Signature&) = default;
};

// Reads `func.func @main(%arg0: tensor<2xf32> {attributes}, ...) -> (tensor<2xf32>, ...)` out of
// the module's text. Throws kInvalidArgument when it is not there or has types other than tensors
// of static shape.
Signature ParseSignature(std::string_view module);

// Throws kInvalidArgument naming replica and parameter. `devices[i]` is where arguments[i] must be;
// without a signature, only what does not need one is checked.
void CheckLaunch(const Signature* signature, std::span<const int> devices,
                 std::span<const std::vector<Buffer*>> arguments, const ExecuteOptions& options);

// Throws kInvalidArgument when the replicas do not fit the devices or these are out of range.
void CheckCompileOptions(const CompileOptions& options, size_t num_devices, size_t num_processes);

// A serialized executable of ours: checksum and signature before the plugin's bytes. Unpack throws
// kDataLoss on anything damaged or foreign: a plugin may crash on such bytes.
std::string PackExecutable(const Signature* signature, std::string_view payload);
std::pair<std::optional<Signature>, std::string_view> UnpackExecutable(std::string_view packed);

}  // namespace torch_xla::pjrt
