#include "pjrt/plugin_library.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <variant>

namespace torch_xla::pjrt {
namespace {

// 0.57 moved members of PJRT_Api; tables before it cannot be read with later headers.
constexpr int kOldestMinor = 57;
// The arguments of the FFI extension had another layout in older plugins.
constexpr int kOldestMinorFfi = 81;

// The FFI extension (PJRT extension type 5). Its header is not part of the PJRT header that
// plugins ship, so the members that we call are declared here.
struct FfiRegisterHandlerArgs {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  unsigned traits;
};

struct FfiExtension {
  PJRT_Extension_Base base;
  void* type_id_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(FfiRegisterHandlerArgs* args);
};

const FfiExtension* FindFfiExtension(const PJRT_Api* api) {
  if (api->pjrt_api_version.minor_version < kOldestMinorFfi) return nullptr;
  for (const PJRT_Extension_Base* e = api->extension_start; e != nullptr; e = e->next) {
    if (RawEnum(e->type) != PJRT_Extension_Type_FFI) continue;
    const auto* ffi = reinterpret_cast<const FfiExtension*>(e);
    bool complete = e->struct_size >= sizeof(FfiExtension) && ffi->register_handler != nullptr;
    return complete ? ffi : nullptr;
  }
  return nullptr;
}

// XLA's registry has its own names for platforms.
std::string FfiPlatform(const std::string& platform) {
  if (platform == "cpu" || platform == "host") return "Host";
  if (platform == "cuda" || platform == "gpu") return "CUDA";
  if (platform == "rocm") return "ROCM";
  return platform;
}

// A bare name is left to the dynamic loader's search path.
void CheckFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    if (path.find('/') == std::string::npos && !path.empty()) return;
    Throw(Code::kNotFound, "PJRT plugin '", path, "': ", std::strerror(errno));
  }
  XLA_CHECK(!S_ISDIR(info.st_mode), kInvalidArgument, "PJRT plugin '", path,
            "' is a directory, not a shared library");
}

// Never destroyed: clients may outlive static destruction.
struct Libraries {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<PluginLibrary>> by_path;
};

Libraries& libraries() {
  static auto* l = new Libraries;
  return *l;
}

std::string Canonical(const std::string& path) {
  std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
  return real ? real.get() : path;
}

// A library cut short maps well and dies of SIGBUS when its missing pages are touched, still inside
// dlopen: each loaded segment has to lie within the file. What is no ELF file is dlopen's to
// refuse.
void CheckComplete(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  auto size = static_cast<uint64_t>(file.tellg());
  ElfW(Ehdr) header;
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header)) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(ElfW(Phdr))) {
    return;
  }
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  bool complete = true;
  for (int i = 0; complete && i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    complete = !file.read(reinterpret_cast<char*>(&segment), sizeof(segment)).fail() &&
               (segment.p_type != PT_LOAD || segment.p_offset + segment.p_filesz <= size);
  }
  XLA_CHECK(complete, kInvalidArgument, "PJRT plugin '", path, "' is damaged: the file of ", size,
            " bytes ends before its contents; install it again");
}

}  // namespace

PluginLibrary& PluginLibrary::Open(const std::string& path) {
  Libraries& l = libraries();
  std::lock_guard<std::mutex> lock(l.mutex);
  std::string key = Canonical(path);
  auto it = l.by_path.find(key);
  if (it == l.by_path.end()) {
    std::unique_ptr<PluginLibrary> library(new PluginLibrary(path));
    library->Load();
    it = l.by_path.emplace(key, std::move(library)).first;
  }
  return *it->second;
}

PluginLibrary& PluginLibrary::Adopt(const std::string& name, const PJRT_Api* api) {
  std::unique_ptr<PluginLibrary> library(new PluginLibrary(name));
  library->api_ = api;
  library->Start();
  Libraries& l = libraries();
  std::lock_guard<std::mutex> lock(l.mutex);
  auto [it, added] = l.by_path.emplace(name, std::move(library));
  XLA_CHECK(added, kAlreadyExists, "a PJRT plugin named '", name, "' is there already");
  return *it->second;
}

void PluginLibrary::Load() {
  CheckFile(path_);
  CheckComplete(path_);
  // The runtime inside a plugin is talkative; a user who sets the variable wants to hear it.
  setenv("TF_CPP_MIN_LOG_LEVEL", "2", /*overwrite=*/0);
  void* handle = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    Throw(Code::kInvalidArgument, "PJRT plugin '", path_,
          "' cannot be loaded as a shared library: ", why != nullptr ? why : "unknown error");
  }
  auto get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(handle, "GetPjrtApi"));
  if (get_api == nullptr) {
    dlclose(handle);
    Throw(Code::kInvalidArgument, "'", path_,
          "' is a shared library but no PJRT plugin: it has no symbol GetPjrtApi");
  }
  api_ = get_api();
  Start();
}

void PluginLibrary::Start() {
  XLA_CHECK(api_ != nullptr, kFailedPrecondition, "PJRT plugin '", path_,
            "': GetPjrtApi returned no function table");
  CheckVersion();
  PJRT_ARGS(PJRT_Plugin_Initialize, args);
  Status status = TakeError(api_, api_->PJRT_Plugin_Initialize(&args), "PJRT_Plugin_Initialize");
  if (!status.ok()) Throw(status.code, "PJRT plugin '", path_, "': ", status.message);
  ReadAttributes();
}

void PluginLibrary::CheckVersion() const {
  constexpr size_t kVersionEnd =
      offsetof(PJRT_Api, pjrt_api_version) + sizeof(PJRT_Api::pjrt_api_version);
  XLA_CHECK(api_->struct_size >= kVersionEnd, kFailedPrecondition, "PJRT plugin '", path_,
            "': its function table (", api_->struct_size, " bytes) is too small to have a version");
  auto [major, minor] = api_version();
  XLA_CHECK(major == PJRT_API_MAJOR && minor >= kOldestMinor, kFailedPrecondition, "PJRT plugin '",
            path_, "' speaks PJRT ", major, ".", minor, "; this build needs ", PJRT_API_MAJOR, ".",
            kOldestMinor, " or a later ", PJRT_API_MAJOR, ".x");
#define REQUIRE(Fn)                                                                             \
  XLA_CHECK(PJRT_HAS(api_, Fn), kFailedPrecondition, "PJRT plugin '", path_, "' (PJRT ", major, \
            ".", minor, ") lacks the function " #Fn)
  REQUIRE(PJRT_Error_Destroy);
  REQUIRE(PJRT_Error_Message);
  REQUIRE(PJRT_Error_GetCode);
  REQUIRE(PJRT_Plugin_Initialize);
  REQUIRE(PJRT_Event_Destroy);
  REQUIRE(PJRT_Event_IsReady);
  REQUIRE(PJRT_Event_Error);
  REQUIRE(PJRT_Event_OnReady);
  REQUIRE(PJRT_Client_Create);
  REQUIRE(PJRT_Client_Destroy);
  REQUIRE(PJRT_Client_PlatformName);
  REQUIRE(PJRT_Client_PlatformVersion);
  REQUIRE(PJRT_Client_ProcessIndex);
  REQUIRE(PJRT_Client_Devices);
  REQUIRE(PJRT_Client_AddressableDevices);
  REQUIRE(PJRT_Client_Compile);
  REQUIRE(PJRT_Client_BufferFromHostBuffer);
  REQUIRE(PJRT_Device_GetDescription);
  REQUIRE(PJRT_DeviceDescription_Id);
  REQUIRE(PJRT_DeviceDescription_ProcessIndex);
  REQUIRE(PJRT_DeviceDescription_Kind);
  REQUIRE(PJRT_LoadedExecutable_Destroy);
  REQUIRE(PJRT_LoadedExecutable_GetExecutable);
  REQUIRE(PJRT_LoadedExecutable_AddressableDevices);
  REQUIRE(PJRT_LoadedExecutable_Execute);
  REQUIRE(PJRT_Executable_Destroy);
  REQUIRE(PJRT_Executable_NumOutputs);
  REQUIRE(PJRT_Executable_OutputElementTypes);
  REQUIRE(PJRT_Executable_OutputDimensions);
  REQUIRE(PJRT_Buffer_Destroy);
  REQUIRE(PJRT_Buffer_IsDeleted);
  REQUIRE(PJRT_Buffer_ReadyEvent);
  REQUIRE(PJRT_Buffer_ToHostBuffer);
#undef REQUIRE
}

void PluginLibrary::ReadAttributes() {
  if (!PJRT_HAS(api_, PJRT_Plugin_Attributes)) return;
  PJRT_ARGS(PJRT_Plugin_Attributes, args);
  // Attributes are optional: a plugin that refuses has none.
  if (!TakeError(api_, api_->PJRT_Plugin_Attributes(&args), "PJRT_Plugin_Attributes").ok()) return;
  Options attributes = FromNamedValues(args.attributes, args.num_attributes);
  auto it = attributes.find("stablehlo_current_version");
  if (it == attributes.end()) return;
  if (const auto* version = std::get_if<std::vector<int64_t>>(&it->second)) {
    for (int64_t part : *version) {
      if (!stablehlo_version_.empty()) stablehlo_version_ += '.';
      stablehlo_version_ += std::to_string(part);
    }
  } else if (const auto* text = std::get_if<std::string>(&it->second)) {
    stablehlo_version_ = *text;
  }
}

bool PluginLibrary::RegisterFfiHandler(const std::string& platform, const std::string& target,
                                       void* handler) {
  XLA_CHECK(handler != nullptr && !target.empty(), kInvalidArgument,
            "an FFI handler needs a target name and a function");
  const FfiExtension* ffi = FindFfiExtension(api_);
  if (ffi == nullptr) return false;
  std::string ffi_platform = FfiPlatform(platform);
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = handlers_.find(target);
  if (it != handlers_.end()) {
    XLA_CHECK(it->second == handler, kAlreadyExists, "FFI target '", target,
              "' is already registered with another handler");
    return true;
  }
  FfiRegisterHandlerArgs args{};
  args.struct_size = sizeof(args);
  args.target_name = target.data();
  args.target_name_size = target.size();
  args.handler = handler;
  args.platform_name = ffi_platform.data();
  args.platform_name_size = ffi_platform.size();
  ThrowIfError(api_, ffi->register_handler(&args), "PJRT_FFI_Register_Handler");
  handlers_.emplace(target, handler);
  return true;
}

}  // namespace torch_xla::pjrt
