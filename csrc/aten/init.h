// Start of the library: what must follow all static registrations.
#pragma once

namespace torch_xla {

// Idempotent. Python's import calls it; a C++ program calls it before it makes a tensor on xla.
void Initialize();

}  // namespace torch_xla
