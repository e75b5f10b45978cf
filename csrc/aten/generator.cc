#include "aten/generator.h"

#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <array>

#include "lazy/tensor.h"

namespace torch_xla {

XLAGenerator::XLAGenerator(int device)
    : GeneratorImpl(c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(device)),
                    c10::DispatchKeySet(c10::DispatchKey::XLA)),
      seed_(c10::default_rng_seed_val) {}

void XLAGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}
void XLAGenerator::set_offset(uint64_t offset) { offset_ = offset; }
uint64_t XLAGenerator::get_offset() const { return offset_; }
uint64_t XLAGenerator::current_seed() const { return seed_; }
uint64_t XLAGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void XLAGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.device().is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                   "RNG state must be a torch.ByteTensor on the CPU");
  TORCH_CHECK(state.numel() == 16, "RNG state of an XLA device has 16 bytes, got ", state.numel());
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  std::memcpy(&seed_, bytes, 8);
  std::memcpy(&offset_, bytes + 8, 8);
}

c10::intrusive_ptr<c10::TensorImpl> XLAGenerator::get_state() const {
  at::Tensor state = at::empty({16}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  auto* bytes = static_cast<uint8_t*>(state.mutable_data_ptr());
  std::memcpy(bytes, &seed_, 8);
  std::memcpy(bytes + 8, &offset_, 8);
  return state.getIntrusivePtr();
}

uint64_t XLAGenerator::Advance(uint64_t count) {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(offset_, offset_ + count);
}

XLAGenerator* XLAGenerator::clone_impl() const {
  auto* copy = new XLAGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& DefaultGenerator(int device) {
  static auto* generators = [] {
    auto* all = new std::vector<at::Generator>;
    for (int d = 0; d < lazy::kMaxDevices; ++d) all->push_back(at::make_generator<XLAGenerator>(d));
    return all;
  }();
  TORCH_CHECK(device >= 0 && device < lazy::kMaxDevices, "xla:", device, " does not exist");
  return (*generators)[static_cast<size_t>(device)];
}

RandomInputs NextRandom(const std::optional<at::Generator>& generator, int device, int64_t count) {
  const at::Generator& g =
      generator.has_value() && generator->defined() ? *generator : DefaultGenerator(device);
  TORCH_CHECK(g.device().is_xla(), "Expected a 'xla' device type for generator but found '",
              g.device().type(), "'");
  auto* impl = g.get<XLAGenerator>();
  uint64_t offset = impl->Advance(static_cast<uint64_t>(count));
  return {{ir::Node::MakeScalar(DType::kS64, static_cast<int64_t>(impl->current_seed())), 0},
          {ir::Node::MakeScalar(DType::kS64, static_cast<int64_t>(offset)), 0}};
}

}  // namespace torch_xla
