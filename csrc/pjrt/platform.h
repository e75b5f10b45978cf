// Which plugin serves the platform that PJRT_DEVICE names.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pjrt/client.h"

namespace torch_xla::pjrt {

struct Plugin {
  std::string name;  // platform: "CPU", "CUDA", ...
  std::string library_path;
  Options options;  // client options
};

// Finds the plugin of a platform ("" means: choose one). The bindings register one that reads the
// Python entry points `xla_plugins` and `jax_plugins`; a C++ program sets PJRT_LIBRARY_PATH or
// registers its own. Throws kNotFound with what is installed and the command that mends it.
using Resolver = std::function<Plugin(const std::string& platform)>;
void SetResolver(Resolver resolver);

// PJRT_DEVICE in upper case with aliases resolved (GPU -> CUDA), "" when unset.
std::string RequestedPlatform();
// Adds the options that follow from the environment, such as cpu_device_count.
Plugin ResolvePlugin();

}  // namespace torch_xla::pjrt
