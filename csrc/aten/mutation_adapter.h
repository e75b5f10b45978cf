// In-place and out= forms served by the functional form's native kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch_xla {

// How a mutating schema is served; for the tests and the docs.
struct MutationRoute {
  std::string name;     // "aten::add.out"
  std::string how;      // "native", "composite", "adapter" or "fallback"
  std::string partner;  // of an adapter: "aten::add.Tensor"
};

// Raises where `out` cannot take the result: another device, or a dtype that PyTorch does not cast
// to.
void CheckOut(const at::Tensor& out, const at::Tensor& result);

// Registers one boxed kernel for each in-place or out= form that has no kernel of its own and whose
// functional partner has a *native* one: a composite partner may be written with the very in-place
// form, which would recurse for ever. Call once, after all other registrations.
void InstallMutationAdapter();
std::vector<MutationRoute> MutationRoutes();

}  // namespace torch_xla
