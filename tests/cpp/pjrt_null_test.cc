// The null client, the signature parser and the checks of a launch: device-free.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "pjrt/null_client.h"
#include "pjrt/signature.h"
#include "pjrt_testing.h"

namespace torch_xla::pjrt {
namespace {

const Shape kF4{DType::kF32, {4}};

TEST(SignatureTest, ReadsTypesAndDonors) {
  Signature s = ParseSignature(
      "module @jit_f attributes {x = \"@main(\"} {\n"
      "  func.func @helper(%arg0: tensor<9xi1>) -> tensor<9xi1> { return %arg0 : tensor<9xi1> }\n"
      "  func.func public @main(%arg0: tensor<2x3xf32> {jax.buffer_donor = true, a = \"),\"},\n"
      "      %arg1: tensor<i64>, %arg2: tensor<0x4xcomplex<f64>> {tf.aliasing_output = 1 : i32} "
      "loc(\"f.py\":3:4)) -> (tensor<bf16> {jax.result_info = \"[0]\"}, tensor<7xui8>) {\n");
  EXPECT_EQ(s.parameters,
            (std::vector<Shape>{{DType::kF32, {2, 3}}, {DType::kS64, {}}, {DType::kC128, {0, 4}}}));
  EXPECT_EQ(s.donatable, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(s.results, (std::vector<Shape>{{DType::kBF16, {}}, {DType::kU8, {7}}}));
}

TEST(SignatureTest, ShortForms) {
  Signature s = ParseSignature("func.func @main() -> tensor<3xf16> {");
  EXPECT_TRUE(s.parameters.empty());
  EXPECT_EQ(s.results, (std::vector<Shape>{{DType::kF16, {3}}}));
  EXPECT_TRUE(ParseSignature("func.func @main(%a: tensor<f32>) {").results.empty());
  EXPECT_TRUE(ParseSignature("func.func @main(%a: tensor<f32>) -> () {").results.empty());
}

TEST(SignatureTest, EveryElementType) {
  for (int i = 0; i < kNumDTypes; ++i) {
    Shape shape{Stored(static_cast<DType>(i)), {2, 1}};
    Signature s = ParseSignature("func.func @main(%a: " + ToString(shape) + ") -> () {");
    EXPECT_EQ(s.parameters, std::vector<Shape>{shape});
  }
}

TEST(SignatureTest, RefusesWhatItCannotRead) {
  for (const char* text :
       {"", "module {}", "func.func @main(%a: tensor<?xf32>)", "func.func @main(%a: tensor<2xf33>)",
        "func.func @main(%a: tensor<2xf32>", "func.func @main(%a: !stablehlo.token)",
        "func.func @main(%a", "func.func @main(%a: tensor<99999999999999999999xf32>)"}) {
    EXPECT_EQ(StatusOf([&] { ParseSignature(text); }).code, Code::kInvalidArgument) << text;
  }
}

TEST(PackTest, RoundTripAndDamage) {
  Signature s = ParseSignature(
      "func.func @main(%a: tensor<2x3xf32> {jax.buffer_donor = true}, %b: tensor<i1>) -> "
      "tensor<5xui64> {");
  std::string payload("\0plugin\xff", 8);
  std::string packed = PackExecutable(&s, payload);
  auto [signature, bytes] = UnpackExecutable(packed);
  ASSERT_TRUE(signature.has_value());
  EXPECT_EQ(*signature, s);
  EXPECT_EQ(bytes, payload);
  std::string bare = PackExecutable(nullptr, payload);
  EXPECT_FALSE(UnpackExecutable(bare).first.has_value());
  EXPECT_EQ(UnpackExecutable(bare).second, payload);
  for (size_t i = 0; i < packed.size(); ++i) {
    std::string damaged = packed;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    EXPECT_EQ(StatusOf([&] { UnpackExecutable(damaged); }).code, Code::kDataLoss) << "byte " << i;
    EXPECT_EQ(StatusOf([&] { UnpackExecutable(packed.substr(0, i)); }).code, Code::kDataLoss)
        << "cut at " << i;
  }
}

TEST(NullClientTest, GivesZerosOfTheResultTypes) {
  auto client = MakeNullClientForTest();
  EXPECT_EQ(client->platform_name(), "null");
  auto program = client->Compile(AddModule("tensor<4xf32>"), {});
  EXPECT_EQ(program->num_outputs(), 1);
  auto a = ToDevice<float>(*client, {1, 2, 3, 4}, kF4);
  EXPECT_EQ(ToHost<float>(*a), (std::vector<float>{1, 2, 3, 4}));
  auto out = Launch(*program, {a.get(), a.get()});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0]->shape(), kF4);
  EXPECT_EQ(ToHost<float>(*out[0]), (std::vector<float>(4, 0)));
  EXPECT_EQ(client->compile_count(), 1);
  EXPECT_EQ(client->execute_count(), 1);
  EXPECT_EQ(client->from_host_count(), 1);
  EXPECT_EQ(client->to_host_count(), 2);
  EXPECT_EQ(client->last_module(), AddModule("tensor<4xf32>"));
  EXPECT_EQ(program->memory()->argument, 32);
}

TEST(NullClientTest, HostMemoryIsReleasedOnceAlsoAfterErrors) {
  auto client = MakeNullClientForTest();
  float data[4] = {};
  int done = 0;
  client->BufferFromHost(data, kF4, 0, HostBuffer::kUntilTransferred, [&] { ++done; });
  EXPECT_EQ(done, 1);
  EXPECT_EQ(StatusOf([&] {
              client->BufferFromHost(data, kF4, 3, HostBuffer::kUntilTransferred, [&] { ++done; });
            }).code,
            Code::kInvalidArgument);
  EXPECT_EQ(done, 2);
}

TEST(NullClientTest, DonationDeletesAndCountsBytes) {
  auto client = MakeNullClientForTest();
  auto program = client->Compile(AddModule("tensor<4xf32>", " {jax.buffer_donor = true}"), {});
  auto a = ToDevice<float>(*client, {1, 2, 3, 4}, kF4);
  auto b = ToDevice<float>(*client, {1, 2, 3, 4}, kF4);
  ExecuteOptions keep;
  keep.non_donatable = {0};
  Launch(*program, {a.get(), b.get()}, keep);
  EXPECT_FALSE(a->deleted());
  EXPECT_EQ(client->memory_stats(0)->bytes_in_use, 32);
  auto out = Launch(*program, {a.get(), b.get()});
  EXPECT_TRUE(a->deleted());
  EXPECT_FALSE(b->deleted());
  EXPECT_EQ(client->memory_stats(0)->bytes_in_use, 32);  // b and the result
  EXPECT_EQ(StatusOf([&] { ToHost<float>(*a); }).code, Code::kInvalidArgument);
  a.reset();
  b.reset();
  out.clear();
  EXPECT_EQ(client->memory_stats(0)->bytes_in_use, 0);
}

TEST(NullClientTest, ManualCompletionKeepsTheOrder) {
  auto client = MakeNullClientForTest();
  auto program = client->Compile(AddModule("tensor<4xf32>"), {});
  auto a = ToDevice<float>(*client, {1, 2, 3, 4}, kF4);
  std::vector<Buffer*> args{a.get(), a.get()};
  client->SetManualCompletion(true);
  auto first = program->Execute(std::span(&args, 1), {});
  auto second = program->Execute(std::span(&args, 1), {});
  EXPECT_EQ(client->pending_launches(), 2u);
  EXPECT_FALSE(first.done[0].Ready());
  std::vector<float> host(4, 5);
  Event copied = first.outputs[0][0]->CopyToHost(host.data());
  EXPECT_FALSE(copied.Ready());
  EXPECT_EQ(host[0], 5);
  {
    ScopedEnv limit("XLA_WAIT_TIMEOUT_S", "0.1");
    Status s = StatusOf([&] { first.done[0].Wait("the first launch"); });
    EXPECT_EQ(s.code, Code::kDeadlineExceeded);
    EXPECT_TRUE(Contains(s.message, "the first launch")) << s.message;
  }
  EXPECT_TRUE(client->CompleteNext());
  EXPECT_TRUE(first.done[0].Ready());
  EXPECT_TRUE(copied.Ready());
  EXPECT_EQ(host, (std::vector<float>(4, 0)));
  EXPECT_FALSE(second.done[0].Ready());
  EXPECT_TRUE(client->CompleteNext());
  EXPECT_TRUE(second.done[0].Ready());
  EXPECT_FALSE(client->CompleteNext());
}

TEST(NullClientTest, AWaitEndsWhenAnotherThreadCompletes) {
  auto client = MakeNullClientForTest();
  auto program = client->Compile(AddModule("tensor<4xf32>"), {});
  auto a = ToDevice<float>(*client, {1, 2, 3, 4}, kF4);
  std::vector<Buffer*> args{a.get(), a.get()};
  client->SetManualCompletion(true);
  auto result = program->Execute(std::span(&args, 1), {});
  std::thread completer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    client->CompleteNext();
  });
  EXPECT_TRUE(StatusOf([&] { result.done[0].Wait("the launch"); }).ok());
  completer.join();
}

TEST(NullClientTest, InjectedFailuresStrikeOnce) {
  auto client = MakeNullClientForTest();
  client->FailNextCompile({Code::kResourceExhausted, "no memory to compile"});
  Status s = StatusOf([&] { client->Compile(AddModule("tensor<4xf32>"), {}); });
  EXPECT_EQ(s.code, Code::kResourceExhausted);
  EXPECT_EQ(s.message, "no memory to compile");
  auto program = client->Compile(AddModule("tensor<4xf32>"), {});
  EXPECT_EQ(client->compile_count(), 2);

  auto a = ToDevice<float>(*client, {1, 2, 3, 4}, kF4);
  client->FailNextExecute({Code::kInternal, "launch refused"});
  s = StatusOf([&] { Launch(*program, {a.get(), a.get()}); });
  EXPECT_EQ(s.message, "launch refused");
  EXPECT_EQ(client->execute_count(), 0);

  client->FailNextResult({Code::kInternal, "device caught fire"});
  std::vector<Buffer*> args{a.get(), a.get()};
  auto result = program->Execute(std::span(&args, 1), {});
  EXPECT_EQ(StatusOf([&] { result.done[0].Wait("it"); }).message, "device caught fire");
  EXPECT_EQ(StatusOf([&] { ToHost<float>(*result.outputs[0][0]); }).message, "device caught fire");
  EXPECT_TRUE(StatusOf([&] { Launch(*program, {a.get(), a.get()}); }).ok());
}

TEST(NullClientTest, CompileDelay) {
  auto client = MakeNullClientForTest();
  client->SetCompileDelay(std::chrono::milliseconds(50));
  auto start = std::chrono::steady_clock::now();
  client->Compile(AddModule("tensor<4xf32>"), {});
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
}

TEST(NullClientTest, SerializedExecutablesComeBack) {
  auto client = MakeNullClientForTest();
  std::string bytes = client->Compile(AddModule("tensor<4xf32>"), {})->Serialize();
  auto program = client->Deserialize(bytes, {});
  auto a = ToDevice<float>(*client, {1, 2, 3, 4}, kF4);
  EXPECT_EQ(ToHost<float>(*Launch(*program, {a.get(), a.get()})[0]), (std::vector<float>(4, 0)));
  EXPECT_EQ(client->compile_count(), 1);
  EXPECT_EQ(client->deserialize_count(), 1);
  EXPECT_EQ(StatusOf([&] { client->Deserialize("garbage", {}); }).code, Code::kDataLoss);
}

TEST(NullClientTest, PendingWorkEndsWithTheClient) {
  auto client = MakeNullClientForTest();
  client->SetManualCompletion(true);
  auto program = client->Compile(AddModule("tensor<4xf32>"), {});
  auto a = ToDevice<float>(*client, {1, 2, 3, 4}, kF4);
  std::vector<Buffer*> args{a.get(), a.get()};
  auto result = program->Execute(std::span(&args, 1), {});
  EXPECT_FALSE(result.done[0].Ready());
  client.reset();
  EXPECT_TRUE(result.done[0].Ready());
}

TEST(NullClientTest, Replicas) {
  auto client = MakeNullClientForTest(3);
  CompileOptions options;
  options.num_replicas = 2;
  options.devices = {2, 0};
  auto program = client->Compile(AddModule("tensor<4xf32>"), options);
  auto on2 = ToDevice<float>(*client, {1, 2, 3, 4}, kF4, 2);
  auto on0 = ToDevice<float>(*client, {1, 2, 3, 4}, kF4, 0);
  std::vector<std::vector<Buffer*>> args{{on2.get(), on2.get()}, {on0.get(), on0.get()}};
  auto result = program->Execute(args, {});
  ASSERT_EQ(result.outputs.size(), 2u);
  EXPECT_EQ(result.outputs[0][0]->device(), 2);
  EXPECT_EQ(result.outputs[1][0]->device(), 0);
  std::swap(args[0], args[1]);
  Status s = StatusOf([&] { program->Execute(args, {}); });
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_EQ(s.message, "argument 0 of replica 0 must be on device 2, but is on device 0");
}

TEST(EventTest, TheDefaultIsReadyAndOk) {
  Event event;
  EXPECT_TRUE(event.Ready());
  bool called = false;
  event.OnReady([&](const Status& s) { called = s.ok(); });
  EXPECT_TRUE(called);
  EXPECT_TRUE(StatusOf([&] { event.Wait("nothing"); }).ok());
}

}  // namespace
}  // namespace torch_xla::pjrt
