// What the layers above need of a device runtime. Two implementations: a plugin behind the PJRT C
// API (plugin_client.cc) and a null client that compiles nothing (null_client.cc).
//
// All methods are thread-safe unless they say otherwise. Failures are torch_xla::Error.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/shape.h"

namespace torch_xla::pjrt {

// Client options and device attributes.
using Option = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>>;
using Options = std::map<std::string, Option>;

// Completion of asynchronous work; copies share it.
class Event {
 public:
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual bool Ready() = 0;
    // Calls fn once, on any thread, at once when already ready.
    virtual void OnReady(std::function<void(const Status&)> fn) = 0;
  };

  Event() = default;  // ready and ok
  explicit Event(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  bool Ready() const { return !impl_ || impl_->Ready(); }
  void OnReady(std::function<void(const Status&)> fn) const;
  // Interruptible; throws the work's error, or kDeadlineExceeded naming `what`.
  void Wait(const std::string& what) const;

 private:
  std::shared_ptr<Impl> impl_;
};

class Buffer {
 public:
  virtual ~Buffer() = default;  // frees the device memory
  virtual const Shape& shape() const = 0;
  virtual int device() const = 0;  // index into Client::devices()
  // Starts a copy to `dst` (shape().bytes() of it, row-major); dst must live until the event.
  virtual Event CopyToHost(void* dst) = 0;
  virtual Event ReadyEvent() = 0;
  // Its memory, row-major, where the host can read it, else null. Only when it is ready, and only
  // as long as it is neither freed nor donated.
  virtual const void* HostPointer() { return nullptr; }
  virtual size_t device_bytes() = 0;
  virtual bool deleted() = 0;  // donated or freed
};
using BufferPtr = std::shared_ptr<Buffer>;

struct ExecuteOptions {
  // Indices of parameters that must not be donated in this launch although the program may.
  std::vector<int64_t> non_donatable;
  // For a portable single-device program: where to run. Otherwise ignored.
  int device = 0;
};

struct ExecuteResult {
  std::vector<std::vector<BufferPtr>> outputs;  // [device][output]
  std::vector<Event> done;                      // [device]
};

class Executable {
 public:
  virtual ~Executable() = default;
  virtual int num_outputs() const = 0;
  // Parameters that a launch takes over unless ExecuteOptions::non_donatable names them.
  virtual std::vector<bool> donatable() const = 0;
  // arguments[device][parameter]; one list for a single-device program. Returns at once on an
  // asynchronous plugin. Not to be called by two threads at once for one client when the program
  // has several replicas (the launcher sees to it).
  virtual ExecuteResult Execute(std::span<const std::vector<Buffer*>> arguments,
                                const ExecuteOptions& options) = 0;
  virtual std::string Serialize() = 0;
  // Bytes: arguments, outputs, temporaries, generated code; nullopt where the plugin has none.
  struct Memory {
    int64_t argument = 0, output = 0, temp = 0, alias = 0, code = 0;
  };
  virtual std::optional<Memory> memory() = 0;
};
using ExecutablePtr = std::shared_ptr<Executable>;

struct CompileOptions {
  int num_replicas = 1;
  // Replicas run on these (indices into devices()); empty: a single-device program compiled
  // portable (`compile_portable_executable`), that runs wherever ExecuteOptions::device says. {0},
  // with a replica for each of several processes: on the first device of each.
  std::vector<int> devices;
};

struct DeviceInfo {
  int id = 0;  // global
  int local_id = 0;
  int process_index = 0;
  std::string kind;  // vendor's text, "cpu"
  std::string debug_string;
  Options attributes;
};

struct MemoryStats {
  int64_t bytes_in_use = 0;
  std::optional<int64_t> peak_bytes_in_use;
  std::optional<int64_t> bytes_limit;
};

// How far host memory handed to BufferFromHost must stay alive.
enum class HostBuffer {
  kCopiedDuringCall,  // free when the call returns
  kUntilTransferred,  // free when `on_done` is called
};

class Client {
 public:
  virtual ~Client() = default;
  virtual const std::string& platform_name() const = 0;  // lower case: "cpu", "cuda", "tpu", "null"
  virtual const std::string& platform_version() const = 0;
  virtual std::pair<int, int> api_version() const = 0;
  // e.g. "1.13.3"; empty where the plugin does not say.
  virtual const std::string& stablehlo_version() const = 0;
  virtual const std::vector<DeviceInfo>& devices() const = 0;  // addressable ones
  virtual int global_device_count() const = 0;
  virtual int process_index() const = 0;
  // The global id of the first device of each process.
  virtual const std::vector<int64_t>& process_devices() const = 0;

  // `data` is row-major. `on_done` may be called on any thread, exactly once, also after errors.
  virtual BufferPtr BufferFromHost(const void* data, const Shape& shape, int device,
                                   HostBuffer semantics, std::function<void()> on_done = {}) = 0;
  // `module` is StableHLO text. Blocks; may take minutes.
  virtual ExecutablePtr Compile(std::string_view module, const CompileOptions& options) = 0;
  virtual ExecutablePtr Deserialize(std::string_view serialized, const CompileOptions& options) = 0;
  virtual std::optional<MemoryStats> memory_stats(int device) = 0;
  // Registers an XLA FFI handler (an XLA_FFI_Handler*) for custom calls; false where unsupported.
  virtual bool RegisterFfiHandler(const std::string& target, void* handler) = 0;
  // Ends the client now although its buffers and executables may still exist: from then on they
  // can only be destroyed. For the exit of the process, when no other call is running.
  virtual void Close() {}
};
using ClientPtr = std::shared_ptr<Client>;

// Opens the plugin at `library_path` and makes a client. `options` that the plugin does not know
// are tried with and, where refused, retried without. Errors name the path and say what is wrong
// (no such file, not loadable, no GetPjrtApi, version too old, client failed).
ClientPtr MakePluginClient(const std::string& library_path, const Options& options);

// Accepts every program and compiles nothing; executions give zeros of the module's result types.
// For device-free tests of everything above.
ClientPtr MakeNullClient(int num_devices = 1);

}  // namespace torch_xla::pjrt
