// Random numbers: a counter-based function of (seed, offset, position), kept per device.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

#include "ir/node.h"

namespace torch_xla {

class XLAGenerator final : public c10::GeneratorImpl {
 public:
  explicit XLAGenerator(int device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  // A CPU byte tensor of 16 bytes: seed and offset, little endian.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Reserves `count` numbers and returns the offset of the first.
  uint64_t Advance(uint64_t count);
  static c10::DeviceType device_type() { return c10::kXLA; }

 private:
  XLAGenerator* clone_impl() const override;
  uint64_t seed_;
  uint64_t offset_ = 0;
};

const at::Generator& DefaultGenerator(int device);

// The inputs (seed and offset, two scalar leaves) of a random node that draws `count` numbers.
struct RandomInputs {
  ir::Value seed, offset;
};
RandomInputs NextRandom(const std::optional<at::Generator>& generator, int device, int64_t count);

}  // namespace torch_xla
