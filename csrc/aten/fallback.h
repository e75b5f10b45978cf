// Operators without a native kernel run on the host, counted under "aten::<op>".
#pragma once

#include <string>
#include <vector>

namespace torch_xla {

// Registers the boxed fallback of the XLA key. Call once, after InstallMutationAdapter: what has a
// fallback looks as if it had a kernel.
void InstallFallback();
// View operators of ATen that would reach the XLA key by a composite or the fallback: each would be
// silently wrong. Empty when all is well; call before InstallFallback.
std::vector<std::string> UncoveredViews();

}  // namespace torch_xla
