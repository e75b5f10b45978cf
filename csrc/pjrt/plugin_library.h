// A PJRT plugin's shared library, opened once per process and never closed.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "pjrt/c_api.h"

namespace torch_xla::pjrt {

class PluginLibrary {
 public:
  // Errors: kNotFound (no such file), kInvalidArgument (not a PJRT plugin), kFailedPrecondition
  // (its version of the interface does not fit), or what the plugin's own start-up says.
  static PluginLibrary& Open(const std::string& path);
  // A function table that is in the process already; Open(name) then finds it. For tests and for
  // programs that link their plugin in.
  static PluginLibrary& Adopt(const std::string& name, const PJRT_Api* api);

  const PJRT_Api* api() const { return api_; }
  const std::string& path() const { return path_; }
  std::pair<int, int> api_version() const {
    return {api_->pjrt_api_version.major_version, api_->pjrt_api_version.minor_version};
  }
  const std::string& stablehlo_version() const { return stablehlo_version_; }

  // False when the plugin has no FFI extension. `platform` is the client's platform name.
  bool RegisterFfiHandler(const std::string& platform, const std::string& target, void* handler);

 private:
  explicit PluginLibrary(std::string path) : path_(std::move(path)) {}
  void Load();
  void Start();
  void CheckVersion() const;
  void ReadAttributes();

  const std::string path_;
  const PJRT_Api* api_ = nullptr;
  std::string stablehlo_version_;
  std::mutex mutex_;
  std::map<std::string, void*> handlers_;  // the plugin's registry is one per process, too
};

}  // namespace torch_xla::pjrt
