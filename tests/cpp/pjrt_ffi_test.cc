// FFI handlers: registration, execution, and the asynchronous errors that they make possible.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "pjrt/ffi.h"
#include "pjrt_testing.h"

namespace torch_xla::pjrt {
namespace {

std::atomic<bool> fail{false};

// result[i] = argument[i] + 100, or an error.
extern "C" void* AddHundred(ffi::CallFrame* frame) {
  if (ffi::AnswerMetadata(frame)) return nullptr;
  if (fail) {
    ffi::ErrorCreateArgs args{sizeof(args), nullptr, "the handler is out of order", 9};
    return frame->api->error_create(&args);
  }
  auto* in = static_cast<ffi::Buffer*>(frame->args.values[0]);
  auto* out = static_cast<ffi::Buffer*>(frame->rets.values[0]);
  int64_t n = 1;
  for (int64_t i = 0; i < in->rank; ++i) n *= in->dims[i];
  for (int64_t i = 0; i < n; ++i) {
    static_cast<float*>(out->data)[i] = static_cast<float*>(in->data)[i] + 100;
  }
  return nullptr;
}

extern "C" void* Other(ffi::CallFrame* frame) {
  ffi::AnswerMetadata(frame);
  return nullptr;
}

std::string CallModule(const std::string& target) {
  return "module {\n  func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n"
         "    %0 = \"stablehlo.custom_call\"(%arg0) <{call_target_name = \"" +
         target +
         "\", api_version = 4 : i32}> : (tensor<4xf32>) -> tensor<4xf32>\n"
         "    \"func.return\"(%0) : (tensor<4xf32>) -> ()\n  }\n}\n";
}

class FfiTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(ConformanceLibrary(), "") << "PJRT_CONFORMANCE_LIBRARY must name a PJRT plugin";
    client_ = MakePluginClient(ConformanceLibrary(), {});
    ASSERT_TRUE(client_->RegisterFfiHandler("torch_xla_test$add_hundred",
                                            reinterpret_cast<void*>(&AddHundred)));
    program_ = client_->Compile(CallModule("torch_xla_test$add_hundred"), {});
    input_ = ToDevice<float>(*client_, {1, 2, 3, 4}, kF4);
  }
  void TearDown() override { fail = false; }

  const Shape kF4{DType::kF32, {4}};
  ClientPtr client_;
  ExecutablePtr program_;
  BufferPtr input_;
};

TEST_F(FfiTest, HandlerRuns) {
  EXPECT_EQ(ToHost<float>(*Launch(*program_, {input_.get()}).at(0)),
            (std::vector<float>{101, 102, 103, 104}));
}

TEST_F(FfiTest, HandlerRunsInADeserializedProgram) {
  auto loaded = client_->Deserialize(program_->Serialize(), {});
  EXPECT_EQ(ToHost<float>(*Launch(*loaded, {input_.get()}).at(0)),
            (std::vector<float>{101, 102, 103, 104}));
}

// A small program may run inside Execute: the error comes from there or from the event.
TEST_F(FfiTest, ErrorsSurfaceAndTheNextRunWorks) {
  fail = true;
  Status s = StatusOf([&] { Launch(*program_, {input_.get()}); });
  EXPECT_TRUE(Contains(s.message, "the handler is out of order")) << s.message;
  fail = false;
  EXPECT_EQ(ToHost<float>(*Launch(*program_, {input_.get()}).at(0)),
            (std::vector<float>{101, 102, 103, 104}));
}

// The launch is fine; its event, its results and what is computed from them carry the error.
TEST_F(FfiTest, AsynchronousErrors) {
  const Shape square{DType::kF32, {512, 512}};
  const std::string t = ToString(square);
  auto slow = client_->Compile(
      "module {\n  func.func @main(%arg0: " + t + ") -> " + t +
          " {\n    %0 = \"stablehlo.dot_general\"(%arg0, %arg0) <{dot_dimension_numbers = "
          "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : "
          "(" +
          t + ", " + t + ") -> " + t +
          "\n    %1 = \"stablehlo.custom_call\"(%0) <{call_target_name = "
          "\"torch_xla_test$add_hundred\", api_version = 4 : i32}> : (" +
          t + ") -> " + t + "\n    \"func.return\"(%1) : (" + t + ") -> ()\n  }\n}\n",
      {});
  BufferPtr zeros =
      ToDevice(*client_, std::vector<float>(static_cast<size_t>(square.numel()), 0), square);
  fail = true;
  std::vector<Buffer*> args{zeros.get()};
  ExecuteResult result = slow->Execute(std::span(&args, 1), {});
  auto message = [](auto&& fn) { return StatusOf(fn).message; };
  const char* const kWhy = "the handler is out of order";
  EXPECT_PRED2(Contains, message([&] { result.done.at(0).Wait("the launch"); }), kWhy);
  Status seen;
  result.done[0].OnReady([&](const Status& status) { seen = status; });
  EXPECT_PRED2(Contains, seen.message, kWhy);
  BufferPtr bad = result.outputs.at(0).at(0);
  EXPECT_PRED2(Contains, message([&] { bad->ReadyEvent().Wait("the result"); }), kWhy);
  EXPECT_PRED2(Contains, message([&] { ToHost<float>(*bad); }), kWhy);

  fail = false;
  EXPECT_PRED2(Contains, message([&] { Launch(*slow, {bad.get()}); }), kWhy);
  EXPECT_EQ(ToHost<float>(*Launch(*slow, {zeros.get()}).at(0)).at(0), 100);
}

TEST_F(FfiTest, RegistrationIsIdempotentAndExclusive) {
  EXPECT_TRUE(client_->RegisterFfiHandler("torch_xla_test$add_hundred",
                                          reinterpret_cast<void*>(&AddHundred)));
  EXPECT_EQ(StatusOf([&] {
              client_->RegisterFfiHandler("torch_xla_test$add_hundred",
                                          reinterpret_cast<void*>(&Other));
            }).code,
            Code::kAlreadyExists);
  EXPECT_EQ(
      StatusOf([&] { client_->RegisterFfiHandler("", reinterpret_cast<void*>(&Other)); }).code,
      Code::kInvalidArgument);
  EXPECT_EQ(StatusOf([&] { client_->RegisterFfiHandler("torch_xla_test$none", nullptr); }).code,
            Code::kInvalidArgument);
}

TEST_F(FfiTest, UnregisteredTargetFailsToCompile) {
  Status s = StatusOf([&] { client_->Compile(CallModule("torch_xla_test$missing"), {}); });
  EXPECT_FALSE(s.ok());
  EXPECT_TRUE(Contains(s.message, "torch_xla_test$missing")) << s.message;
}

}  // namespace
}  // namespace torch_xla::pjrt
