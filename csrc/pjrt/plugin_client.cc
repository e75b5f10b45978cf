#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>
#include <utility>

#include "pjrt/c_api.h"
#include "pjrt/client.h"
#include "pjrt/compile_options.h"
#include "pjrt/key_value.h"
#include "pjrt/plugin_library.h"
#include "pjrt/plugin_objects.h"
#include "pjrt/signature.h"

namespace torch_xla::pjrt {
namespace {

class PluginClient final : public Client {
 public:
  PluginClient(PluginLibrary& library, PJRT_Client* client)
      : core_(std::make_shared<PluginCore>(library, client)) {
    ReadPlatform();
    ReadDevices();
  }

  const std::string& platform_name() const override { return platform_name_; }
  const std::string& platform_version() const override { return platform_version_; }
  std::pair<int, int> api_version() const override { return core_->library.api_version(); }
  const std::string& stablehlo_version() const override {
    return core_->library.stablehlo_version();
  }
  const std::vector<DeviceInfo>& devices() const override { return devices_; }
  int global_device_count() const override { return global_device_count_; }
  int process_index() const override { return process_index_; }
  const std::vector<int64_t>& process_devices() const override { return process_devices_; }

  BufferPtr BufferFromHost(const void* data, const Shape& shape, int device, HostBuffer semantics,
                           std::function<void()> on_done) override;
  ExecutablePtr Compile(std::string_view module, const CompileOptions& options) override;
  ExecutablePtr Deserialize(std::string_view serialized, const CompileOptions& options) override;
  std::optional<MemoryStats> memory_stats(int device) override;
  bool RegisterFfiHandler(const std::string& target, void* handler) override {
    core_->CheckUsable();
    return core_->library.RegisterFfiHandler(platform_name_, target, handler);
  }
  void Close() override { core_->Close(); }

 private:
  const PJRT_Api* api() const { return core_->api; }
  void ReadPlatform();
  void ReadDevices();
  DeviceInfo ReadDevice(PJRT_Device* device) const;
  PJRT_Device* device(int index) const;
  std::string EncodeOptions(const CompileOptions& options) const;

  const PluginCorePtr core_;
  std::string platform_name_;
  std::string platform_version_;
  int process_index_ = 0;
  int global_device_count_ = 0;
  std::vector<int64_t> process_devices_;
  std::vector<DeviceInfo> devices_;
};

void PluginClient::ReadPlatform() {
  PJRT_ARGS(PJRT_Client_PlatformName, name);
  name.client = core_->client;
  PJRT_CALL(api(), PJRT_Client_PlatformName, name);
  platform_name_.assign(name.platform_name, name.platform_name_size);
  for (char& c : platform_name_) c = static_cast<char>(std::tolower(static_cast<uint8_t>(c)));
  PJRT_ARGS(PJRT_Client_PlatformVersion, version);
  version.client = core_->client;
  PJRT_CALL(api(), PJRT_Client_PlatformVersion, version);
  platform_version_.assign(version.platform_version, version.platform_version_size);
  PJRT_ARGS(PJRT_Client_ProcessIndex, process);
  process.client = core_->client;
  PJRT_CALL(api(), PJRT_Client_ProcessIndex, process);
  process_index_ = process.process_index;
}

void PluginClient::ReadDevices() {
  PJRT_ARGS(PJRT_Client_Devices, all);
  all.client = core_->client;
  PJRT_CALL(api(), PJRT_Client_Devices, all);
  global_device_count_ = static_cast<int>(all.num_devices);
  std::map<int, int64_t> first;  // by process
  for (size_t i = 0; i < all.num_devices; ++i) {
    const DeviceInfo info = ReadDevice(all.devices[i]);
    first.try_emplace(info.process_index, info.id);
  }
  for (const auto& [process, id] : first) process_devices_.push_back(id);
  PJRT_ARGS(PJRT_Client_AddressableDevices, mine);
  mine.client = core_->client;
  PJRT_CALL(api(), PJRT_Client_AddressableDevices, mine);
  core_->devices.assign(mine.addressable_devices,
                        mine.addressable_devices + mine.num_addressable_devices);
  for (PJRT_Device* d : core_->devices) devices_.push_back(ReadDevice(d));
}

DeviceInfo PluginClient::ReadDevice(PJRT_Device* device) const {
  PJRT_ARGS(PJRT_Device_GetDescription, description);
  description.device = device;
  PJRT_CALL(api(), PJRT_Device_GetDescription, description);
  PJRT_DeviceDescription* d = description.device_description;
  DeviceInfo info;
  PJRT_ARGS(PJRT_DeviceDescription_Id, id);
  id.device_description = d;
  PJRT_CALL(api(), PJRT_DeviceDescription_Id, id);
  info.id = id.id;
  PJRT_ARGS(PJRT_DeviceDescription_ProcessIndex, process);
  process.device_description = d;
  PJRT_CALL(api(), PJRT_DeviceDescription_ProcessIndex, process);
  info.process_index = process.process_index;
  PJRT_ARGS(PJRT_DeviceDescription_Kind, kind);
  kind.device_description = d;
  PJRT_CALL(api(), PJRT_DeviceDescription_Kind, kind);
  info.kind.assign(kind.device_kind, kind.device_kind_size);
  if (PJRT_HAS(api(), PJRT_Device_LocalHardwareId)) {
    PJRT_ARGS(PJRT_Device_LocalHardwareId, local);
    local.device = device;
    PJRT_CALL(api(), PJRT_Device_LocalHardwareId, local);
    info.local_id = local.local_hardware_id;
  }
  if (PJRT_HAS(api(), PJRT_DeviceDescription_DebugString)) {
    PJRT_ARGS(PJRT_DeviceDescription_DebugString, debug);
    debug.device_description = d;
    PJRT_CALL(api(), PJRT_DeviceDescription_DebugString, debug);
    info.debug_string.assign(debug.debug_string, debug.debug_string_size);
  }
  if (PJRT_HAS(api(), PJRT_DeviceDescription_Attributes)) {
    PJRT_ARGS(PJRT_DeviceDescription_Attributes, attributes);
    attributes.device_description = d;
    PJRT_CALL(api(), PJRT_DeviceDescription_Attributes, attributes);
    info.attributes = FromNamedValues(attributes.attributes, attributes.num_attributes);
  }
  return info;
}

PJRT_Device* PluginClient::device(int index) const {
  XLA_CHECK(index >= 0 && static_cast<size_t>(index) < core_->devices.size(), kInvalidArgument,
            "device ", index, " is out of range: there are ", core_->devices.size(), " device(s)");
  return core_->devices[static_cast<size_t>(index)];
}

// Calls a function once: when told to, or at the latest when the last copy goes.
class OnDone {
 public:
  explicit OnDone(std::function<void()> fn) : fn_(std::move(fn)) {}
  ~OnDone() { Run(); }
  OnDone(const OnDone&) = delete;
  OnDone& operator=(const OnDone&) = delete;
  void Run() {
    if (auto fn = std::exchange(fn_, nullptr)) fn();
  }
  std::function<void()> Release() { return std::exchange(fn_, nullptr); }

 private:
  std::function<void()> fn_;
};

BufferPtr PluginClient::BufferFromHost(const void* data, const Shape& shape, int device_index,
                                       HostBuffer semantics, std::function<void()> on_done) {
  OnDone done(std::move(on_done));
  core_->CheckUsable();
  const bool empty = shape.bytes() == 0;
  XLA_CHECK(data != nullptr || empty, kInvalidArgument, "copy to device: the source is null");
  static constexpr char kNothing = 0;
  PJRT_ARGS(PJRT_Client_BufferFromHostBuffer, args);
  args.client = core_->client;
  args.data = empty ? &kNothing : data;
  args.type = ToPjrt(shape.dtype);
  args.dims = shape.dims.data();
  args.num_dims = shape.dims.size();
  args.host_buffer_semantics = semantics == HostBuffer::kCopiedDuringCall
                                   ? PJRT_HostBufferSemantics_kImmutableOnlyDuringCall
                                   : PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  args.device = device(device_index);
  PJRT_CALL(api(), PJRT_Client_BufferFromHostBuffer, args);
  auto buffer = std::make_shared<PluginBuffer>(core_, args.buffer, shape, device_index);
  if (semantics == HostBuffer::kCopiedDuringCall || empty) {
    DestroyEvent(api(), args.done_with_host_buffer);
    return buffer;
  }
  Event event = MakeEvent(api(), args.done_with_host_buffer, "PJRT_Client_BufferFromHostBuffer");
  // Moved out: from here on the event calls it. Its error is also the buffer's.
  event.OnReady([fn = std::make_shared<OnDone>(done.Release())](const Status&) { fn->Run(); });
  return buffer;
}

std::string PluginClient::EncodeOptions(const CompileOptions& options) const {
  CheckCompileOptions(options, devices_.size(), process_devices_.size());
  std::vector<int64_t> ids;
  for (int d : options.devices) ids.push_back(devices_[static_cast<size_t>(d)].id);
  if (static_cast<size_t>(options.num_replicas) > ids.size() && !ids.empty())
    ids = process_devices_;
  return EncodeCompileOptions(ids, platform_name_ == "cpu" || platform_name_ == "host");
}

// None of a module that is valid for the plugin, but not printed by us: its arguments go unchecked.
std::optional<Signature> SignatureOf(std::string_view module) {
  try {
    return ParseSignature(module);
  } catch (const Error&) {
    return std::nullopt;
  }
}

ExecutablePtr PluginClient::Compile(std::string_view module, const CompileOptions& options) {
  core_->CheckUsable();
  std::string encoded = EncodeOptions(options);
  std::string code(module);  // PJRT's field is not const
  static constexpr std::string_view kFormat = "mlir";
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = code.data();
  program.code_size = code.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  PJRT_ARGS(PJRT_Client_Compile, args);
  args.client = core_->client;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  PJRT_CALL(api(), PJRT_Client_Compile, args);
  return std::make_shared<PluginExecutable>(core_, args.executable, SignatureOf(module), options);
}

ExecutablePtr PluginClient::Deserialize(std::string_view serialized,
                                        const CompileOptions& options) {
  core_->CheckUsable();
  std::string encoded = EncodeOptions(options);
  auto [signature, payload] = UnpackExecutable(serialized);
  XLA_CHECK(PJRT_HAS(api(), PJRT_Executable_DeserializeAndLoad), kUnimplemented,
            "the plugin cannot load serialized executables");
  PJRT_ARGS(PJRT_Executable_DeserializeAndLoad, args);
  args.client = core_->client;
  args.serialized_executable = payload.data();
  args.serialized_executable_size = payload.size();
  args.overridden_serialized_compile_options = encoded.data();
  args.overridden_serialized_compile_options_size = encoded.size();
  PJRT_CALL(api(), PJRT_Executable_DeserializeAndLoad, args);
  return std::make_shared<PluginExecutable>(core_, args.loaded_executable, std::move(signature),
                                            options);
}

std::optional<MemoryStats> PluginClient::memory_stats(int index) {
  core_->CheckUsable();
  if (!PJRT_HAS(api(), PJRT_Device_MemoryStats)) return std::nullopt;
  PJRT_ARGS(PJRT_Device_MemoryStats, args);
  args.device = device(index);
  Status status =
      TakeError(api(), api()->PJRT_Device_MemoryStats(&args), "PJRT_Device_MemoryStats");
  if (status.code == Code::kUnimplemented) return std::nullopt;
  status.ThrowIfError();
  MemoryStats stats;
  stats.bytes_in_use = args.bytes_in_use;
  if (args.peak_bytes_in_use_is_set) stats.peak_bytes_in_use = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) stats.bytes_limit = args.bytes_limit;
  return stats;
}

std::pair<PJRT_Client*, Status> CreateClient(const PJRT_Api* api, const Options& options) {
  std::vector<PJRT_NamedValue> values = ToNamedValues(options);
  PJRT_ARGS(PJRT_Client_Create, args);
  args.create_options = values.data();
  args.num_options = values.size();
  if (KeyValueStore* store = GetKeyValueStore()) SetCallbacks(args, *store);
  Status status = TakeError(api, api->PJRT_Client_Create(&args), "PJRT_Client_Create");
  return {args.client, std::move(status)};
}

// Whether the plugin's refusal may be about options that it does not know, and not about a value.
bool RefusesUnknownOption(const Status& status) {
  if (status.code != Code::kInvalidArgument && status.code != Code::kUnimplemented &&
      status.code != Code::kNotFound) {
    return false;
  }
  for (const char* word : {"nexpected", "nknown", "nrecognized", "nsupported", "not supported"}) {
    if (status.message.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

ClientPtr MakePluginClient(const std::string& library_path, const Options& options) {
  CheckNotForked();
  PluginLibrary& library = PluginLibrary::Open(library_path);
  Options remaining = options;
  auto [client, status] = CreateClient(library.api(), remaining);
  const Status first = status;
  while (!status.ok() && !remaining.empty() && RefusesUnknownOption(status)) {
    // Drops the option that the message names, or all when it names none.
    auto named = std::find_if(remaining.begin(), remaining.end(), [&](const auto& option) {
      return status.message.find(option.first) != std::string::npos;
    });
    if (named != remaining.end()) {
      remaining.erase(named);
    } else {
      remaining.clear();
    }
    std::tie(client, status) = CreateClient(library.api(), remaining);
  }
  if (!status.ok()) {
    Throw(first.code, "PJRT plugin '", library_path, "' could not make a client: ", first.message);
  }
  return std::make_shared<PluginClient>(library, client);
}

}  // namespace torch_xla::pjrt
