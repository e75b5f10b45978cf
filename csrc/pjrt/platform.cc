#include "pjrt/platform.h"

#include <cctype>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/flags.h"

namespace torch_xla::pjrt {
namespace {

using flags::Flag;

constexpr int64_t kMaxDevices = 1024;  // more is a slip of the finger

struct Registered {
  std::mutex mutex;
  Resolver resolver;
};

Registered& registered() {
  static auto* r = new Registered;
  return *r;
}

Resolver CurrentResolver() {
  std::lock_guard<std::mutex> lock(registered().mutex);
  return registered().resolver;
}

int64_t DeviceCount(Flag flag, const char* name) {
  int64_t n = flags::GetInt(flag);
  XLA_CHECK(n >= 1 && n <= kMaxDevices, kInvalidArgument, name, "=", n,
            " is not a number of devices (1 to ", kMaxDevices, ")");
  return n;
}

// What the user or the resolver set already stays.
void AddOptionsFromEnvironment(Plugin& plugin) {
  if (plugin.name == "CPU") {
    plugin.options.emplace("cpu_device_count",
                           DeviceCount(Flag::kCpuNumDevices, "CPU_NUM_DEVICES"));
  } else if (plugin.name == "CUDA") {
    if (flags::IsSet(Flag::kGpuNumDevices)) {
      std::vector<int64_t> visible;
      int64_t n = DeviceCount(Flag::kGpuNumDevices, "GPU_NUM_DEVICES");
      for (int64_t i = 0; i < n; ++i) visible.push_back(i);
      plugin.options.emplace("visible_devices", std::move(visible));
    }
    if (flags::IsSet(Flag::kAllocatorPreallocate)) {
      plugin.options.emplace("preallocate", flags::GetBool(Flag::kAllocatorPreallocate));
    }
    if (flags::IsSet(Flag::kAllocatorFraction)) {
      double fraction = flags::GetDouble(Flag::kAllocatorFraction);
      XLA_CHECK(fraction > 0 && fraction <= 1, kInvalidArgument,
                "PJRT_ALLOCATOR_FRACTION=", fraction,
                " is not a part of the memory (above 0, at most 1)");
      plugin.options.emplace("memory_fraction", fraction);
    }
  }
}

// With a path alone nothing names the platform before the client exists. The CPU plugins' files
// have "cpu" in their names; a wrong guess costs one option that MakePluginClient drops again.
std::string GuessPlatform(const std::string& library_path) {
  std::string file = library_path.substr(library_path.rfind('/') + 1);
  return file.find("cpu") != std::string::npos ? "CPU" : "";
}

}  // namespace

void SetResolver(Resolver resolver) {
  std::lock_guard<std::mutex> lock(registered().mutex);
  registered().resolver = std::move(resolver);
}

std::string RequestedPlatform() {
  std::string name = flags::GetString(Flag::kPjrtDevice);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name == "GPU" ? "CUDA" : name;
}

Plugin ResolvePlugin() {
  std::string platform = RequestedPlatform();
  std::string path = flags::GetString(Flag::kPjrtLibraryPath);
  Plugin plugin;
  if (!path.empty()) {
    plugin.name = platform.empty() ? GuessPlatform(path) : platform;
    plugin.library_path = path;
  } else if (Resolver resolver = CurrentResolver()) {
    plugin = resolver(platform);
  } else {
    Throw(Code::kNotFound, "no PJRT plugin for ",
          platform.empty() ? "this process" : StrCat("PJRT_DEVICE=", platform),
          ". Install one (`pip install xla-cpu-pjrt` for CPU), or set PJRT_LIBRARY_PATH to the "
          "plugin's shared library");
  }
  AddOptionsFromEnvironment(plugin);
  return plugin;
}

}  // namespace torch_xla::pjrt
