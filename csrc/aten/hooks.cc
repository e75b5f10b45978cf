// What PyTorch looks up under the name torch_xla::detail::XLAHooks.
#include <ATen/detail/XLAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "aten/device.h"
#include "aten/generator.h"
#include "lazy/runtime.h"

namespace torch_xla::detail {

struct XLAHooks : at::XLAHooksInterface {
  explicit XLAHooks(at::XLAHooksArgs = {}) {}

  void init() const override { lazy::Runtime::Get(); }
  bool hasXLA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  std::string showConfig() const override { return "torch_xla"; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return DefaultGenerator(device < 0 ? CurrentDevice() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<XLAGenerator>(device < 0 ? CurrentDevice() : device);
  }
  c10::DeviceIndex deviceCount() const override {
    return c10::impl::getDeviceGuardImpl(c10::kXLA)->deviceCount();
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(CurrentDevice());
  }
  void setCurrentDevice(c10::DeviceIndex d) const override { SetCurrentDevice(d); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex d) const override {
    auto old = getCurrentDevice();
    SetCurrentDevice(d);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex d) const override {
    return d < 0 ? getCurrentDevice() : exchangeDevice(d);
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return lazy::Runtime::GetIfCreated() != nullptr;
  }
};

}  // namespace torch_xla::detail

namespace at {
C10_REGISTER_CLASS(XLAHooksRegistry, torch_xla::detail::XLAHooks, torch_xla::detail::XLAHooks)
}  // namespace at
