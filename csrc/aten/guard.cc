// Device bookkeeping that PyTorch asks for: the current device, how many there are.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dirent.h>

#include <exception>

#include "aten/device.h"
#include "base/error.h"
#include "base/flags.h"
#include "lazy/executor.h"
#include "lazy/runtime.h"
#include "pjrt/platform.h"

namespace torch_xla {
namespace {

thread_local c10::DeviceIndex current_device = 0;

// GPUs that the machine shows, without making a client.
int VisibleGpus() {
  int n = 0;
  if (DIR* dir = opendir("/dev")) {
    while (dirent* entry = readdir(dir)) {
      std::string name = entry->d_name;
      n += name.rfind("nvidia", 0) == 0 && name.size() > 6 && std::isdigit(name[6]) != 0;
    }
    closedir(dir);
  }
  return n;
}

int ExpectedDeviceCount() {
  if (lazy::Runtime* r = lazy::Runtime::GetIfCreated()) return r->num_devices();
  try {
    std::string platform = pjrt::RequestedPlatform();
    int cpu = static_cast<int>(flags::GetInt(flags::Flag::kCpuNumDevices));
    if (platform == "CPU") return cpu;
    if (flags::IsSet(flags::Flag::kGpuNumDevices)) {
      return static_cast<int>(flags::GetInt(flags::Flag::kGpuNumDevices));
    }
    return std::max({1, cpu, VisibleGpus()});
  } catch (const std::exception&) {
    return 1;  // what is wrong with the environment is said when the client is made
  }
}

struct XLAGuardImpl final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kXLA;

  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device d) const override {
    c10::Device old = getDevice();
    setDevice(d);
    return old;
  }
  c10::Device getDevice() const override { return {c10::kXLA, current_device}; }
  void setDevice(c10::Device d) const override {
    TORCH_INTERNAL_ASSERT(d.is_xla());
    current_device = d.index() < 0 ? 0 : d.index();
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    current_device = d.index() < 0 ? 0 : d.index();
  }
  c10::Stream getStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT, d);
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return getStream(d); }
  c10::Stream getNewStream(c10::Device d, int) const override { return getStream(d); }
  c10::Stream exchangeStream(c10::Stream s) const override { return getStream(s.device()); }
  // Right from the import on: autograd sizes its queues at the first backward and never again.
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(ExpectedDeviceCount());
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& s) const override {
    synchronizeDevice(s.device_index());
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    lazy::Sync(device < 0 ? current_device : device, /*wait=*/true);
  }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  // One stream per device: events have nothing to order.
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    *event = nullptr;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

C10_REGISTER_GUARD_IMPL(XLA, XLAGuardImpl);

}  // namespace

int CurrentDevice() { return current_device; }

void SetCurrentDevice(int device) {
  XLA_CHECK(device >= 0 && device < lazy::kMaxDevices, kInvalidArgument, "xla:", device,
            " does not exist");
  current_device = static_cast<c10::DeviceIndex>(device);
}

}  // namespace torch_xla
