#include "pjrt/plugin_objects.h"

#include <algorithm>
#include <array>
#include <typeinfo>
#include <utility>

namespace torch_xla::pjrt {
namespace {

// An array that is on the stack in the usual case: a launch should cost a few microseconds.
template <typename T, size_t kInline>
class Scratch {
 public:
  explicit Scratch(size_t n) {
    if (n > kInline) heap_.resize(n);
    data_ = n > kInline ? heap_.data() : inline_.data();
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  std::array<T, kInline> inline_{};
  std::vector<T> heap_;
  T* data_;
};

}  // namespace

void PluginCore::Close() {
  if (!Usable() || closed_.exchange(true)) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (; live_ != nullptr; live_ = live_->next_) live_->Destroy();
  }
  PJRT_ARGS(PJRT_Client_Destroy, args);
  args.client = client;
  TakeError(api, api->PJRT_Client_Destroy(&args), "PJRT_Client_Destroy");
}

void PluginCore::ThrowUnusable() {
  CheckNotForked();
  Throw(Code::kFailedPrecondition, "the XLA client is closed");
}

PluginObject::PluginObject(PluginCorePtr core) : core_(std::move(core)) {
  std::lock_guard<std::mutex> lock(core_->mutex_);
  next_ = core_->live_;
  if (next_ != nullptr) next_->previous_ = this;
  core_->live_ = this;
}

void PluginObject::Unlink() {
  (previous_ != nullptr ? previous_->next_ : core_->live_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

void PluginObject::Release() {
  if (!core_->Usable()) return;
  {
    std::lock_guard<std::mutex> lock(core_->mutex_);
    Unlink();
  }
  Destroy();
}

void PluginBuffer::Destroy() {
  PJRT_ARGS(PJRT_Buffer_Destroy, args);
  args.buffer = buffer_;
  TakeError(api(), api()->PJRT_Buffer_Destroy(&args), "PJRT_Buffer_Destroy");
}

Event PluginBuffer::CopyToHost(void* dst) {
  core_->CheckUsable();
  // A null destination would be a query for the size, and no bytes need no copy.
  if (shape_.bytes() == 0) return ReadyEvent();
  XLA_CHECK(dst != nullptr, kInvalidArgument, "copy to host: the destination is null");
  const size_t rank = shape_.dims.size();
  Dims minor_to_major(rank, 0);
  for (size_t i = 0; i < rank; ++i) minor_to_major[i] = static_cast<int64_t>(rank - 1 - i);
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = rank;
  PJRT_ARGS(PJRT_Buffer_ToHostBuffer, args);
  args.src = buffer_;
  args.host_layout = &layout;
  args.dst = dst;
  args.dst_size = shape_.bytes();
  PJRT_CALL(api(), PJRT_Buffer_ToHostBuffer, args);
  return MakeEvent(api(), args.event, "PJRT_Buffer_ToHostBuffer");
}

Event PluginBuffer::ReadyEvent() {
  core_->CheckUsable();
  PJRT_ARGS(PJRT_Buffer_ReadyEvent, args);
  args.buffer = buffer_;
  PJRT_CALL(api(), PJRT_Buffer_ReadyEvent, args);
  return MakeEvent(api(), args.event, "PJRT_Buffer_ReadyEvent");
}

const void* PluginBuffer::HostPointer() {
  core_->CheckUsable();
  // Programs give their results in descending layouts, and uploads are so too; what other layouts a
  // buffer may have has no address to offer here.
  if (!PJRT_HAS(api(), PJRT_Buffer_UnsafePointer) || !PJRT_HAS(api(), PJRT_Buffer_IsOnCpu)) {
    return nullptr;
  }
  PJRT_ARGS(PJRT_Buffer_IsOnCpu, where);
  where.buffer = buffer_;
  PJRT_CALL(api(), PJRT_Buffer_IsOnCpu, where);
  if (!where.is_on_cpu) return nullptr;
  PJRT_ARGS(PJRT_Buffer_UnsafePointer, args);
  args.buffer = buffer_;
  PJRT_CALL(api(), PJRT_Buffer_UnsafePointer, args);
  return reinterpret_cast<const void*>(args.buffer_pointer);
}

size_t PluginBuffer::device_bytes() {
  core_->CheckUsable();
  if (!PJRT_HAS(api(), PJRT_Buffer_OnDeviceSizeInBytes)) return shape_.bytes();
  PJRT_ARGS(PJRT_Buffer_OnDeviceSizeInBytes, args);
  args.buffer = buffer_;
  PJRT_CALL(api(), PJRT_Buffer_OnDeviceSizeInBytes, args);
  return args.on_device_size_in_bytes;
}

bool PluginBuffer::deleted() {
  if (!core_->Usable()) return true;
  PJRT_ARGS(PJRT_Buffer_IsDeleted, args);
  args.buffer = buffer_;
  PJRT_CALL(api(), PJRT_Buffer_IsDeleted, args);
  return args.is_deleted;
}

PluginExecutable::PluginExecutable(PluginCorePtr core, PJRT_LoadedExecutable* loaded,
                                   std::optional<Signature> signature,
                                   const CompileOptions& options)
    : PluginObject(std::move(core)), loaded_(loaded), signature_(std::move(signature)) {
  try {
    PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable, args);
    args.loaded_executable = loaded_;
    PJRT_CALL(api(), PJRT_LoadedExecutable_GetExecutable, args);
    executable_ = args.executable;
    ReadOutputs();
    ReadDevices(options);
  } catch (...) {
    Release();
    throw;
  }
}

void PluginExecutable::Destroy() {
  if (executable_ != nullptr) {
    PJRT_ARGS(PJRT_Executable_Destroy, args);
    args.executable = executable_;
    TakeError(api(), api()->PJRT_Executable_Destroy(&args), "PJRT_Executable_Destroy");
  }
  PJRT_ARGS(PJRT_LoadedExecutable_Destroy, args);
  args.executable = loaded_;
  TakeError(api(), api()->PJRT_LoadedExecutable_Destroy(&args), "PJRT_LoadedExecutable_Destroy");
}

// Types of the results, asked once here instead of once per buffer and launch.
void PluginExecutable::ReadOutputs() {
  PJRT_ARGS(PJRT_Executable_NumOutputs, count);
  count.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_NumOutputs, count);
  PJRT_ARGS(PJRT_Executable_OutputElementTypes, types);
  types.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_OutputElementTypes, types);
  PJRT_ARGS(PJRT_Executable_OutputDimensions, dims);
  dims.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_OutputDimensions, dims);
  XLA_CHECK(types.num_output_types == count.num_outputs && dims.num_outputs == count.num_outputs,
            kInternal,
            "the plugin disagrees with itself on the number of results: ", count.num_outputs, ", ",
            types.num_output_types, ", ", dims.num_outputs);
  const int64_t* next = dims.dims;
  for (size_t i = 0; i < count.num_outputs; ++i) {
    const int type = RawEnum(types.output_types[i]);
    auto dtype = FromPjrt(type);
    XLA_CHECK(dtype.has_value(), kUnimplemented, "result ", i,
              " of the program has an element type that PyTorch does not know (PJRT type ", type,
              ")");
    outputs_.push_back({*dtype, Dims(Span(next, dims.dim_sizes[i]))});
    next += dims.dim_sizes[i];
  }
}

void PluginExecutable::ReadDevices(const CompileOptions& options) {
  portable_ = options.devices.empty();
  if (portable_) return;
  devices_ = options.devices;
  PJRT_ARGS(PJRT_LoadedExecutable_AddressableDevices, args);
  args.executable = loaded_;
  PJRT_CALL(api(), PJRT_LoadedExecutable_AddressableDevices, args);
  for (size_t i = 0; i < args.num_addressable_devices; ++i) {
    auto at = std::find_if(devices_.begin(), devices_.end(), [&](int d) {
      return core_->devices[static_cast<size_t>(d)] == args.addressable_devices[i];
    });
    if (at != devices_.end()) order_.push_back(static_cast<size_t>(at - devices_.begin()));
  }
  XLA_CHECK(order_.size() == devices_.size() && args.num_addressable_devices == devices_.size(),
            kFailedPrecondition, "the plugin loaded the program on other devices than asked for");
}

ExecuteResult PluginExecutable::Execute(std::span<const std::vector<Buffer*>> arguments,
                                        const ExecuteOptions& options) {
  core_->CheckUsable();
  if (portable_) {
    XLA_CHECK(options.device >= 0 && static_cast<size_t>(options.device) < core_->devices.size(),
              kInvalidArgument, "device ", options.device, " is out of range: there are ",
              core_->devices.size(), " device(s)");
  }
  std::span<const int> devices = portable_ ? std::span(&options.device, 1) : std::span(devices_);
  CheckLaunch(signature_ ? &*signature_ : nullptr, devices, arguments, options);

  const size_t num_devices = devices.size();
  const size_t num_args = arguments[0].size();
  const size_t num_outputs = outputs_.size();
  Scratch<PJRT_Buffer*, 32> args_flat(num_devices * num_args);
  Scratch<PJRT_Buffer*, 32> outputs_flat(num_devices * num_outputs);
  Scratch<PJRT_Buffer* const*, 8> args_lists(num_devices);
  Scratch<PJRT_Buffer**, 8> outputs_lists(num_devices);
  Scratch<PJRT_Event*, 8> events(num_devices);
  for (size_t i = 0; i < num_devices; ++i) {
    const std::vector<Buffer*>& list = arguments[portable_ ? 0 : order_[i]];
    for (size_t p = 0; p < num_args; ++p) {
      XLA_CHECK(typeid(*list[p]) == typeid(PluginBuffer) &&
                    static_cast<PluginBuffer*>(list[p])->core() == core_.get(),
                kInvalidArgument, "argument ", p, " belongs to another client");
      args_flat[i * num_args + p] = static_cast<PluginBuffer*>(list[p])->get();
    }
    args_lists[i] = args_flat.data() + i * num_args;
    outputs_lists[i] = outputs_flat.data() + i * num_outputs;
  }

  PJRT_ExecuteOptions execute{};
  execute.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  execute.non_donatable_input_indices = options.non_donatable.data();
  execute.num_non_donatable_input_indices = options.non_donatable.size();
  PJRT_ARGS(PJRT_LoadedExecutable_Execute, args);
  args.executable = loaded_;
  args.options = &execute;
  args.argument_lists = args_lists.data();
  args.num_devices = num_devices;
  args.num_args = num_args;
  args.output_lists = outputs_lists.data();
  args.device_complete_events = events.data();
  // Only for portable programs: one plugin hangs when a replicated program has it set.
  if (portable_) args.execute_device = core_->devices[static_cast<size_t>(options.device)];
  PJRT_CALL(api(), PJRT_LoadedExecutable_Execute, args);

  ExecuteResult result;
  result.outputs.resize(num_devices);
  result.done.resize(num_devices);
  for (size_t i = 0; i < num_devices; ++i) {
    const size_t r = portable_ ? 0 : order_[i];
    result.done[r] = MakeEvent(api(), events[i], "PJRT_LoadedExecutable_Execute");
    result.outputs[r].reserve(num_outputs);
    for (size_t o = 0; o < num_outputs; ++o) {
      result.outputs[r].push_back(
          std::make_shared<PluginBuffer>(core_, outputs_lists[i][o], outputs_[o], devices[r]));
    }
  }
  return result;
}

std::string PluginExecutable::Serialize() {
  core_->CheckUsable();
  XLA_CHECK(PJRT_HAS(api(), PJRT_Executable_Serialize), kUnimplemented,
            "the plugin cannot serialize executables");
  PJRT_ARGS(PJRT_Executable_Serialize, args);
  args.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_Serialize, args);
  std::string packed =
      PackExecutable(signature_ ? &*signature_ : nullptr,
                     std::string_view(args.serialized_bytes, args.serialized_bytes_size));
  if (args.serialized_executable_deleter != nullptr) {
    args.serialized_executable_deleter(args.serialized_executable);
  }
  return packed;
}

std::optional<Executable::Memory> PluginExecutable::memory() {
  core_->CheckUsable();
  if (!PJRT_HAS(api(), PJRT_Executable_GetCompiledMemoryStats)) return std::nullopt;
  PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats, args);
  args.executable = executable_;
  Status status = TakeError(api(), api()->PJRT_Executable_GetCompiledMemoryStats(&args),
                            "PJRT_Executable_GetCompiledMemoryStats");
  if (status.code == Code::kUnimplemented) return std::nullopt;
  status.ThrowIfError();
  Memory memory;
  memory.argument = args.argument_size_in_bytes;
  memory.output = args.output_size_in_bytes;
  memory.temp = args.temp_size_in_bytes;
  memory.alias = args.alias_size_in_bytes;
  memory.code = args.generated_code_size_in_bytes;
  return memory;
}

}  // namespace torch_xla::pjrt
