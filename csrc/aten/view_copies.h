// view_copy, permute_copy and their kin: the view, then a copy. Torch's composites for them are not
// given to the XLA key.
#pragma once

namespace torch_xla {

// Call once, before InstallMutationAdapter (their out= forms are adapted).
void InstallViewCopies();

}  // namespace torch_xla
