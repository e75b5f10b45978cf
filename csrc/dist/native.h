// Collectives as operations of the program itself, for plugins that bring theirs (NCCL and such).
//
// The program then has one replica in each process, numbered by rank. All processes have to run the
// same programs: there is nothing of ours in between that could compare them.
#pragma once

#include <span>
#include <vector>

#include "dist/collective.h"
#include "hlo/builder.h"

namespace torch_xla::dist {

// The results of a collective of `world` replicas, a part after the other. `tensors`: of all parts.
// Throws kUnimplemented for groups of unequal sizes where the sizes are part of the results'.
std::vector<hlo::Value> LowerNative(const Collective& c, int64_t world,
                                    std::span<const hlo::Value> tensors);

}  // namespace torch_xla::dist
