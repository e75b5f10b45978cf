// Operators that act on the world outside of the device, such as a collective that other replicas
// wait for: each recorded one must run once, in the order of recording.
#pragma once

#include "ir/node.h"

namespace torch_xla::lazy {

// At most kMaxEffects; the same one again changes nothing. Thread-safe.
void RegisterEffect(const ir::OpDef& op);
bool IsEffect(const ir::OpDef& op);

// The operator that makes a program one of all processes, each with a replica on its first device.
void SetAcrossProcesses(const ir::OpDef& op);
bool IsAcrossProcesses(const ir::OpDef& op);

}  // namespace torch_xla::lazy
