// The null client with its handles for tests: counters, injected failures, completion by hand.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pjrt/client.h"

namespace torch_xla::pjrt {

struct NullState;

class NullClient final : public Client {
 public:
  explicit NullClient(int num_devices);
  ~NullClient() override;

  const std::string& platform_name() const override;
  const std::string& platform_version() const override;
  std::pair<int, int> api_version() const override { return {0, 0}; }
  const std::string& stablehlo_version() const override;
  const std::vector<DeviceInfo>& devices() const override { return devices_; }
  int global_device_count() const override { return static_cast<int>(devices_.size()); }
  int process_index() const override { return 0; }
  const std::vector<int64_t>& process_devices() const override { return process_devices_; }
  BufferPtr BufferFromHost(const void* data, const Shape& shape, int device, HostBuffer semantics,
                           std::function<void()> on_done) override;
  ExecutablePtr Compile(std::string_view module, const CompileOptions& options) override;
  ExecutablePtr Deserialize(std::string_view serialized, const CompileOptions& options) override;
  // Counts the bytes of live buffers.
  std::optional<MemoryStats> memory_stats(int device) override;
  // Accepts all; nothing calls them.
  bool RegisterFfiHandler(const std::string& target, void* handler) override;

  // --- For tests. ---
  // As if it were one of several processes.
  void SetProcessDevices(std::vector<int64_t> ids) { process_devices_ = std::move(ids); }
  int64_t compile_count() const;  // without deserialized ones
  int64_t deserialize_count() const;
  int64_t execute_count() const;    // launches, however many replicas they have
  int64_t from_host_count() const;  // transfers
  int64_t to_host_count() const;
  std::string last_module() const;  // as compiled last
  CompileOptions last_options() const;

  // The next call throws this.
  void FailNextCompile(Status status);
  void FailNextExecute(Status status);
  // The next launch returns, and then its events and results carry this.
  void FailNextResult(Status status);
  // Each Compile takes this long.
  void SetCompileDelay(std::chrono::milliseconds delay);

  // What memory_stats gives as the devices' limit; without, none.
  void SetBytesLimit(int64_t bytes);

  // Launches made while this is on complete by CompleteNext alone, in their order.
  void SetManualCompletion(bool manual);
  size_t pending_launches() const;
  bool CompleteNext();  // false when none is pending

 private:
  void CheckDevice(int device) const;

  const std::shared_ptr<NullState> state_;
  std::vector<DeviceInfo> devices_;
  std::vector<int64_t> process_devices_{0};
};

std::shared_ptr<NullClient> MakeNullClientForTest(int num_devices = 1);

}  // namespace torch_xla::pjrt
