#include "aten/precision.h"

#include <ATen/Context.h>

#include <atomic>

#include "ir/graph.h"

namespace torch_xla {
namespace {

constexpr int kUnset = -1;
std::atomic<int> chosen{kUnset};

}  // namespace

void SetMatMulPrecision(std::optional<hlo::Precision> precision) {
  chosen.store(precision ? static_cast<int>(*precision) : kUnset);
}

hlo::Precision MatMulPrecision() {
  if (int own = chosen.load(); own != kUnset) return static_cast<hlo::Precision>(own);
  switch (at::globalContext().float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::HIGHEST: return hlo::Precision::kHighest;
    case at::Float32MatmulPrecision::HIGH: return hlo::Precision::kHigh;
    case at::Float32MatmulPrecision::MEDIUM: return hlo::Precision::kDefault;
  }
  return hlo::Precision::kHighest;
}

void InstallMatMulPrecision() { ir::SetPrecisionSource(MatMulPrecision); }

}  // namespace torch_xla
