// What the tests of tensors and executor share: small operators, uploads, the null client.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/wait.h"
#include "hlo/elementwise.h"
#include "ir/node.h"
#include "lazy/executor.h"
#include "lazy/runtime.h"
#include "lazy/tensor.h"
#include "pjrt/null_client.h"

namespace torch_xla::lazy {

// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
inline const Shape kShape{DType::kF32, {4}};

inline void LowerAdd(const ir::Node&, hlo::Builder&, std::span<const hlo::Value> in,
                     std::vector<hlo::Value>& out) {
  out.push_back(hlo::Add(in[0], in[1]));
}
// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
inline const ir::OpDef kAdd("test::add", LowerAdd);

inline void LowerTwo(const ir::Node&, hlo::Builder&, std::span<const hlo::Value> in,
                     std::vector<hlo::Value>& out) {
  out.push_back(hlo::Neg(in[0]));
  out.push_back(hlo::Abs(in[0]));
}
// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
inline const ir::OpDef kTwo("test::two", LowerTwo);

inline ir::Value AddValues(ir::Value a, ir::Value b) {
  Shape shape = a.shape();
  ir::Value operands[] = {std::move(a), std::move(b)};
  return {ir::Node::Make(kAdd, operands, shape), 0};
}
inline Tensor Add(const Tensor& a, const Tensor& b) {
  return {AddValues(a.value(), b.value()), a.device()};
}

inline Tensor Upload(int device = 0, const Shape& shape = kShape) {
  std::vector<float> zeros(static_cast<size_t>(shape.numel()), 0);
  return FromHost(zeros.data(), shape, device);
}

inline bool Computed(const Tensor& t) { return t.value().node->kind() == ir::OpKind::kData; }

// gtest_discover_tests runs every test in a process of its own, so each has a fresh runtime.
class Executor : public ::testing::Test {
 protected:
  void SetUp() override {
    client_ = pjrt::MakeNullClientForTest(4);
    Runtime::SetClientFactory([this] { return client_; });
  }
  void TearDown() override {
    SetInterruptCheck({});
    client_->SetManualCompletion(false);
    while (client_->CompleteNext()) {
    }
    Runtime::Shutdown();
  }
  std::shared_ptr<pjrt::NullClient> client_;
};

}  // namespace torch_xla::lazy
