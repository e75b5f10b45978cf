#pragma once

#include "ir/node.h"

namespace torch_xla::bindings {

// The innermost Python line outside of torch and torch_xla, interned; null where there is none
// (the backward thread).
const ir::SourceLine* PythonLine();

}  // namespace torch_xla::bindings
