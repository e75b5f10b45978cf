// The FFI handlers through which a compiled program reaches the communicator.
#pragma once

namespace torch_xla::dist {

// Carry a version: what the handlers understand is part of compiled programs.
inline constexpr const char* kStartTarget = "torch_xla.collective_start.1";
inline constexpr const char* kWaitTarget = "torch_xla.collective_wait.2";
inline constexpr const char* kWholeTarget = "torch_xla.collective.1";

// With the process's client, once. Throws where the plugin's programs cannot call the host.
void RegisterHandlers();

}  // namespace torch_xla::dist
