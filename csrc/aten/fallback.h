// Operators without a native kernel run on the host, counted under "aten::<op>".
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace torch_xla {

// The boxed fallback itself: the operator on CPU copies of its arguments, counted.
void RunOnHost(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
// The same for a kernel that leaves some arguments to it: AtOp's results for the arguments.
template <typename AtOp>
torch::jit::Stack OnHost(torch::jit::Stack stack) {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow(AtOp::name, AtOp::overload_name);
  RunOnHost(op, {}, &stack);
  return stack;
}

// Registers the boxed fallback of the XLA key, and refusals of view operators without a kernel.
// Call once, after InstallMutationAdapter: what has a fallback looks as if it had a kernel.
void InstallFallback();
// View operators of ATen without a kernel of ours: torch's composites for them would compute with
// strides that are only shown, silently wrong. InstallFallback makes each raise instead.
std::vector<std::string> RefusedViews();

}  // namespace torch_xla
