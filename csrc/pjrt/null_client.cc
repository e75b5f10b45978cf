#include "pjrt/null_client.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "pjrt/signature.h"

namespace torch_xla::pjrt {
namespace {

class NullEvent final : public Event::Impl {
 public:
  bool Ready() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return done_;
  }
  void OnReady(std::function<void(const Status&)> fn) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!done_) {
        callbacks_.push_back(std::move(fn));
        return;
      }
    }
    fn(status_);  // does not change any more
  }
  void Set(const Status& status) {
    std::vector<std::function<void(const Status&)>> callbacks;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      status_ = status;
      done_ = true;
      callbacks.swap(callbacks_);
    }
    for (auto& fn : callbacks) fn(status_);
  }

 private:
  std::mutex mutex_;
  bool done_ = false;
  Status status_;
  std::vector<std::function<void(const Status&)>> callbacks_;
};
using NullEventPtr = std::shared_ptr<NullEvent>;

}  // namespace

// Shared by the client, its executables and its buffers.
struct NullState {
  explicit NullState(int num_devices) : live_bytes(static_cast<size_t>(num_devices)) {}

  std::vector<std::atomic<int64_t>> live_bytes;  // per device
  std::atomic<int64_t> compiles{0}, deserializes{0}, executes{0}, from_host{0}, to_host{0};

  std::mutex mutex;  // guards what follows
  std::string last_module;
  CompileOptions last_options;
  std::optional<Status> fail_compile, fail_execute, fail_result;
  std::chrono::milliseconds compile_delay{0};
  std::optional<int64_t> bytes_limit;
  bool manual = false;
  std::deque<std::pair<NullEventPtr, Status>> pending;

  void ThrowInjected(std::optional<Status>& slot) {
    std::unique_lock<std::mutex> lock(mutex);
    if (auto status = std::exchange(slot, std::nullopt)) {
      lock.unlock();
      status->ThrowIfError();
    }
  }
};

namespace {

class NullBuffer final : public Buffer {
 public:
  // `data`: null means zeros.
  NullBuffer(std::shared_ptr<NullState> state, Shape shape, int device, Event ready,
             std::shared_ptr<const std::string> data)
      : state_(std::move(state)),
        shape_(std::move(shape)),
        device_(device),
        ready_(std::move(ready)),
        data_(std::move(data)) {
    live_bytes() += static_cast<int64_t>(shape_.bytes());
  }
  ~NullBuffer() override { Delete(); }

  const Shape& shape() const override { return shape_; }
  int device() const override { return device_; }
  Event CopyToHost(void* dst) override {
    CheckLive();
    ++state_->to_host;
    auto copied = std::make_shared<NullEvent>();
    ready_.OnReady([copied, dst, data = data_, bytes = shape_.bytes()](const Status& status) {
      if (status.ok() && bytes != 0) {
        if (data) {
          std::memcpy(dst, data->data(), bytes);
        } else {
          std::memset(dst, 0, bytes);
        }
      }
      copied->Set(status);
    });
    return Event(copied);
  }
  Event ReadyEvent() override {
    CheckLive();
    return ready_;
  }
  size_t device_bytes() override { return shape_.bytes(); }
  bool deleted() override { return deleted_; }
  void Delete() {
    if (!deleted_.exchange(true)) live_bytes() -= static_cast<int64_t>(shape_.bytes());
  }

 private:
  std::atomic<int64_t>& live_bytes() { return state_->live_bytes[static_cast<size_t>(device_)]; }
  void CheckLive() const {
    XLA_CHECK(!deleted_, kInvalidArgument, "the buffer was deleted or donated before");
  }

  const std::shared_ptr<NullState> state_;
  const Shape shape_;
  const int device_;
  const Event ready_;
  const std::shared_ptr<const std::string> data_;
  std::atomic<bool> deleted_{false};
};

constexpr std::string_view kPayload = "null";

class NullExecutable final : public Executable {
 public:
  NullExecutable(std::shared_ptr<NullState> state, Signature signature, std::vector<int> devices)
      : state_(std::move(state)), signature_(std::move(signature)), devices_(std::move(devices)) {}

  int num_outputs() const override { return static_cast<int>(signature_.results.size()); }
  std::vector<bool> donatable() const override { return signature_.donatable; }

  ExecuteResult Execute(std::span<const std::vector<Buffer*>> arguments,
                        const ExecuteOptions& options) override {
    auto num_devices = state_->live_bytes.size();
    std::span<const int> devices = devices_;
    if (devices.empty()) {
      XLA_CHECK(options.device >= 0 && static_cast<size_t>(options.device) < num_devices,
                kInvalidArgument, "device ", options.device, " is out of range: there are ",
                num_devices, " device(s)");
      devices = std::span(&options.device, 1);
    }
    CheckLaunch(&signature_, devices, arguments, options);
    state_->ThrowInjected(state_->fail_execute);
    ++state_->executes;
    Donate(arguments, options);

    auto [done, status, now] = Launch();
    ExecuteResult result;
    for (int device : devices) {
      result.done.emplace_back(done);
      auto& outputs = result.outputs.emplace_back();
      for (const Shape& shape : signature_.results) {
        outputs.push_back(
            std::make_shared<NullBuffer>(state_, shape, device, Event(done), nullptr));
      }
    }
    if (now) done->Set(status);
    return result;
  }

  std::string Serialize() override { return PackExecutable(&signature_, kPayload); }

  std::optional<Memory> memory() override {
    Memory memory;
    for (const Shape& s : signature_.parameters) memory.argument += static_cast<int64_t>(s.bytes());
    for (const Shape& s : signature_.results) memory.output += static_cast<int64_t>(s.bytes());
    return memory;
  }

 private:
  struct Started {
    NullEventPtr done;
    Status status;
    bool now;
  };
  Started Launch() {
    std::lock_guard<std::mutex> lock(state_->mutex);
    Started s{std::make_shared<NullEvent>(), {}, !state_->manual};
    if (auto injected = std::exchange(state_->fail_result, std::nullopt)) s.status = *injected;
    if (!s.now) state_->pending.emplace_back(s.done, s.status);
    return s;
  }

  void Donate(std::span<const std::vector<Buffer*>> arguments, const ExecuteOptions& options) {
    std::vector<bool> donated = signature_.donatable;
    for (int64_t i : options.non_donatable) donated[static_cast<size_t>(i)] = false;
    for (const auto& list : arguments) {
      for (size_t p = 0; p < list.size(); ++p) {
        if (donated[p]) static_cast<NullBuffer*>(list[p])->Delete();
      }
    }
  }

  const std::shared_ptr<NullState> state_;
  const Signature signature_;
  const std::vector<int> devices_;  // empty: portable
};

}  // namespace

NullClient::NullClient(int num_devices) : state_(std::make_shared<NullState>(num_devices)) {
  for (int i = 0; i < num_devices; ++i) {
    DeviceInfo info;
    info.id = i;
    info.local_id = i;
    info.kind = "null";
    info.debug_string = StrCat("null:", i);
    devices_.push_back(std::move(info));
  }
}

// Nobody can complete what is pending any more; waiters must not hang.
NullClient::~NullClient() {
  while (CompleteNext()) {
  }
}

const std::string& NullClient::platform_name() const {
  static const std::string name = "null";
  return name;
}

const std::string& NullClient::platform_version() const {
  static const std::string version = "1";
  return version;
}

const std::string& NullClient::stablehlo_version() const {
  static const std::string version;
  return version;
}

void NullClient::CheckDevice(int device) const {
  XLA_CHECK(device >= 0 && static_cast<size_t>(device) < devices_.size(), kInvalidArgument,
            "device ", device, " is out of range: there are ", devices_.size(), " device(s)");
}

BufferPtr NullClient::BufferFromHost(const void* data, const Shape& shape, int device,
                                     HostBuffer /*semantics*/, std::function<void()> on_done) {
  // Copied at once, so the host memory is free on every way out.
  struct Done {
    std::function<void()> fn;
    ~Done() {
      if (fn) fn();
    }
  } done{std::move(on_done)};
  CheckDevice(device);
  XLA_CHECK(data != nullptr || shape.bytes() == 0, kInvalidArgument,
            "copy to device: the source is null");
  ++state_->from_host;
  auto copy = std::make_shared<const std::string>(static_cast<const char*>(data), shape.bytes());
  return std::make_shared<NullBuffer>(state_, shape, device, Event(), std::move(copy));
}

ExecutablePtr NullClient::Compile(std::string_view module, const CompileOptions& options) {
  CheckCompileOptions(options, devices_.size(), process_devices_.size());
  std::chrono::milliseconds delay;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->last_module = module;
    state_->last_options = options;
    delay = state_->compile_delay;
  }
  ++state_->compiles;
  std::this_thread::sleep_for(delay);
  state_->ThrowInjected(state_->fail_compile);
  return std::make_shared<NullExecutable>(state_, ParseSignature(module), options.devices);
}

ExecutablePtr NullClient::Deserialize(std::string_view serialized, const CompileOptions& options) {
  CheckCompileOptions(options, devices_.size(), process_devices_.size());
  auto [signature, payload] = UnpackExecutable(serialized);
  XLA_CHECK(signature && payload == kPayload, kDataLoss,
            "the serialized executable is not the null client's");
  ++state_->deserializes;
  return std::make_shared<NullExecutable>(state_, std::move(*signature), options.devices);
}

std::optional<MemoryStats> NullClient::memory_stats(int device) {
  CheckDevice(device);
  MemoryStats stats;
  stats.bytes_in_use = state_->live_bytes[static_cast<size_t>(device)];
  std::lock_guard<std::mutex> lock(state_->mutex);
  stats.bytes_limit = state_->bytes_limit;
  return stats;
}

bool NullClient::RegisterFfiHandler(const std::string& target, void* handler) {
  XLA_CHECK(handler != nullptr && !target.empty(), kInvalidArgument,
            "an FFI handler needs a target name and a function");
  return true;
}

int64_t NullClient::compile_count() const { return state_->compiles; }
int64_t NullClient::deserialize_count() const { return state_->deserializes; }
int64_t NullClient::execute_count() const { return state_->executes; }
int64_t NullClient::from_host_count() const { return state_->from_host; }
int64_t NullClient::to_host_count() const { return state_->to_host; }

CompileOptions NullClient::last_options() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->last_options;
}

std::string NullClient::last_module() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->last_module;
}

void NullClient::SetBytesLimit(int64_t bytes) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->bytes_limit = bytes;
}

void NullClient::FailNextCompile(Status status) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->fail_compile = std::move(status);
}

void NullClient::FailNextExecute(Status status) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->fail_execute = std::move(status);
}

void NullClient::FailNextResult(Status status) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->fail_result = std::move(status);
}

void NullClient::SetCompileDelay(std::chrono::milliseconds delay) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->compile_delay = delay;
}

void NullClient::SetManualCompletion(bool manual) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->manual = manual;
}

size_t NullClient::pending_launches() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->pending.size();
}

bool NullClient::CompleteNext() {
  std::pair<NullEventPtr, Status> next;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->pending.empty()) return false;
    next = std::move(state_->pending.front());
    state_->pending.pop_front();
  }
  next.first->Set(next.second);
  return true;
}

std::shared_ptr<NullClient> MakeNullClientForTest(int num_devices) {
  XLA_CHECK(num_devices >= 1, kInvalidArgument, "the null client needs a device");
  return std::make_shared<NullClient>(num_devices);
}

ClientPtr MakeNullClient(int num_devices) { return MakeNullClientForTest(num_devices); }

}  // namespace torch_xla::pjrt
