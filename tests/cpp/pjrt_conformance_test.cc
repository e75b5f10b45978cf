// What torch_xla needs of a PJRT plugin, checked on the one that PJRT_CONFORMANCE_LIBRARY names.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/wait.h"
#include "pjrt_testing.h"

namespace torch_xla::pjrt {
namespace {

const Shape kF2{DType::kF32, {2}};
const Shape kF4{DType::kF32, {4}};
const char* const kF4Text = "tensor<4xf32>";

class ConformanceTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(ConformanceLibrary(), "") << "PJRT_CONFORMANCE_LIBRARY must name a PJRT plugin";
    client_ = MakePluginClient(ConformanceLibrary(), {{"cpu_device_count", int64_t{4}}});
    ASSERT_EQ(client_->devices().size(), 4u);
  }

  BufferPtr F4(int device = 0) { return ToDevice<float>(*client_, {1, 2, 3, 4}, kF4, device); }

  // Runs for a second or so on the device: 64-square matrix products in a loop.
  ExecutablePtr CompileSlow(int iterations = 20000) {
    const std::string m = "tensor<64x64xf32>";
    return client_->Compile(
        "module @slow {\n  func.func @main(%arg0: " + m + ") -> " + m +
            " {\n"
            "    %n = \"stablehlo.constant\"() <{value = dense<" +
            std::to_string(iterations) +
            "> : tensor<i32>}> : () -> tensor<i32>\n"
            "    %z = \"stablehlo.constant\"() <{value = dense<0> : tensor<i32>}> : () -> "
            "tensor<i32>\n"
            "    %one = \"stablehlo.constant\"() <{value = dense<1> : tensor<i32>}> : () -> "
            "tensor<i32>\n"
            "    %r:2 = \"stablehlo.while\"(%z, %arg0) ({\n"
            "    ^bb0(%i: tensor<i32>, %x: " +
            m +
            "):\n"
            "      %p = \"stablehlo.compare\"(%i, %n) <{comparison_direction = "
            "#stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            "      \"stablehlo.return\"(%p) : (tensor<i1>) -> ()\n"
            "    }, {\n"
            "    ^bb0(%i: tensor<i32>, %x: " +
            m +
            "):\n"
            "      %j = \"stablehlo.add\"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>\n"
            "      %y = \"stablehlo.dot_general\"(%x, %x) <{dot_dimension_numbers = "
            "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> "
            ": (" +
            m + ", " + m + ") -> " + m +
            "\n"
            "      \"stablehlo.return\"(%j, %y) : (tensor<i32>, " +
            m +
            ") -> ()\n"
            "    }) : (tensor<i32>, " +
            m + ") -> (tensor<i32>, " + m +
            ")\n"
            "    \"func.return\"(%r#1) : (" +
            m + ") -> ()\n  }\n}\n",
        {});
  }
  BufferPtr SlowInput() {
    return ToDevice(*client_, std::vector<float>(64 * 64, 0), {DType::kF32, {64, 64}});
  }

  ClientPtr client_;
};

TEST_F(ConformanceTest, Describes) {
  EXPECT_NE(client_->platform_name(), "");
  EXPECT_NE(client_->platform_version(), "");
  EXPECT_EQ(client_->api_version().first, 0);
  EXPECT_GE(client_->api_version().second, 57);
  EXPECT_EQ(client_->global_device_count(), 4);
  EXPECT_EQ(client_->process_index(), 0);
  // Three numbers: "1.13.3".
  int major = 0, minor = 0, patch = 0;
  EXPECT_EQ(std::sscanf(client_->stablehlo_version().c_str(), "%d.%d.%d", &major, &minor, &patch),
            3)
      << client_->stablehlo_version();
  EXPECT_GE(major, 1);
  std::vector<int> ids;
  for (const DeviceInfo& d : client_->devices()) {
    ids.push_back(d.id);
    EXPECT_EQ(d.process_index, 0);
    EXPECT_NE(d.kind, "");
    EXPECT_NE(d.debug_string, "");
  }
  EXPECT_EQ(ids, (std::vector<int>{0, 1, 2, 3}));
}

TEST_F(ConformanceTest, EveryTypeMakesTheRoundTrip) {
  for (int t = 0; t < kNumDTypes; ++t) {
    for (const Dims& dims : {Dims{}, Dims{1}, Dims{7}, Dims{2, 3, 5}, Dims{0}, Dims{3, 0, 2}}) {
      for (HostBuffer semantics : {HostBuffer::kCopiedDuringCall, HostBuffer::kUntilTransferred}) {
        Shape shape{Stored(static_cast<DType>(t)), dims};
        SCOPED_TRACE(ToString(shape));
        std::string sent(shape.bytes(), '\0');
        for (size_t i = 0; i < sent.size(); ++i) {
          sent[i] = static_cast<char>(shape.dtype == DType::kBool ? i % 2 : i * 37 + 11);
        }
        // Null is fine where there is nothing to read.
        const void* source = sent.empty() ? nullptr : sent.data();
        BufferPtr buffer = client_->BufferFromHost(source, shape, 1, semantics);
        EXPECT_EQ(buffer->shape(), shape);
        EXPECT_EQ(buffer->device(), 1);
        EXPECT_GE(buffer->device_bytes(), shape.bytes());
        EXPECT_FALSE(buffer->deleted());
        buffer->ReadyEvent().Wait("the transfer");
        std::string received(shape.bytes(), 'x');
        buffer->CopyToHost(received.empty() ? nullptr : received.data()).Wait("the copy");
        EXPECT_EQ(received, sent);
        // Where the host can read the memory, the same is there.
        if (const void* memory = buffer->HostPointer(); memory != nullptr && !sent.empty()) {
          EXPECT_EQ(std::memcmp(memory, sent.data(), sent.size()), 0);
        }
      }
    }
  }
}

TEST_F(ConformanceTest, EveryTypePassesThroughAProgram) {
  for (int t = 0; t < kNumDTypes; ++t) {
    for (const Dims& dims : {Dims{3}, Dims{0, 2}}) {
      Shape shape{Stored(static_cast<DType>(t)), dims};
      std::string type = ToString(shape);
      SCOPED_TRACE(type);
      auto program =
          client_->Compile("module {\n  func.func @main(%arg0: " + type + ") -> " + type +
                               " {\n    \"func.return\"(%arg0) : (" + type + ") -> ()\n  }\n}\n",
                           {});
      std::string sent(shape.bytes(), '\1');
      BufferPtr in = client_->BufferFromHost(sent.data(), shape, 0, HostBuffer::kCopiedDuringCall);
      auto out = Launch(*program, {in.get()});
      ASSERT_EQ(out.size(), 1u);
      EXPECT_EQ(out[0]->shape(), shape);
      std::string received(shape.bytes(), 'x');
      out[0]->CopyToHost(received.data()).Wait("the copy");
      EXPECT_EQ(received, sent);
    }
  }
}

// The copy is the caller's again when the call returns, or when told.
TEST_F(ConformanceTest, HostMemoryIsOursAgainWhenPromised) {
  std::vector<float> data{1, 2, 3, 4};
  std::atomic<int> done{0};
  BufferPtr a =
      client_->BufferFromHost(data.data(), kF4, 0, HostBuffer::kCopiedDuringCall, [&] { ++done; });
  EXPECT_EQ(done, 1);
  data.assign(4, 9);
  EXPECT_EQ(ToHost<float>(*a), (std::vector<float>{1, 2, 3, 4}));

  BufferPtr b =
      client_->BufferFromHost(data.data(), kF4, 0, HostBuffer::kUntilTransferred, [&] { ++done; });
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (done != 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_EQ(done, 2);
  data.assign(4, 5);
  EXPECT_EQ(ToHost<float>(*b), (std::vector<float>(4, 9)));

  EXPECT_EQ(StatusOf([&] {
              client_->BufferFromHost(data.data(), kF4, 4, HostBuffer::kUntilTransferred,
                                      [&] { ++done; });
            }).code,
            Code::kInvalidArgument);
  EXPECT_EQ(done, 3);
  EXPECT_EQ(StatusOf([&] {
              client_->BufferFromHost(nullptr, kF4, 0, HostBuffer::kCopiedDuringCall);
            }).code,
            Code::kInvalidArgument);
}

TEST_F(ConformanceTest, ResultsComeRowMajor) {
  auto program = client_->Compile(
      "module {\n  func.func @main(%arg0: tensor<2x3xf32>) -> tensor<3x2xf32> {\n"
      "    %0 = \"stablehlo.transpose\"(%arg0) <{permutation = array<i64: 1, 0>}> : "
      "(tensor<2x3xf32>) -> tensor<3x2xf32>\n"
      "    \"func.return\"(%0) : (tensor<3x2xf32>) -> ()\n  }\n}\n",
      {});
  auto in = ToDevice<float>(*client_, {1, 2, 3, 4, 5, 6}, {DType::kF32, {2, 3}});
  BufferPtr out = Launch(*program, {in.get()})[0];
  const std::vector<float> expected{1, 4, 2, 5, 3, 6};
  EXPECT_EQ(ToHost<float>(*out), expected);
  if (const void* memory = out->HostPointer()) {
    EXPECT_EQ(std::memcmp(memory, expected.data(), out->shape().bytes()), 0);
  }
}

TEST_F(ConformanceTest, ProgramWithoutParametersOrResults) {
  auto constant = client_->Compile(
      "module {\n  func.func @main() -> (tensor<2xf32>, tensor<i64>) {\n"
      "    %0 = \"stablehlo.constant\"() <{value = dense<[1.5, 2.5]> : tensor<2xf32>}> : () -> "
      "tensor<2xf32>\n"
      "    %1 = \"stablehlo.constant\"() <{value = dense<7> : tensor<i64>}> : () -> tensor<i64>\n"
      "    \"func.return\"(%0, %1) : (tensor<2xf32>, tensor<i64>) -> ()\n  }\n}\n",
      {});
  EXPECT_EQ(constant->num_outputs(), 2);
  auto out = Launch(*constant, {});
  EXPECT_EQ(ToHost<float>(*out.at(0)), (std::vector<float>{1.5, 2.5}));
  EXPECT_EQ(ToHost<int64_t>(*out.at(1)), std::vector<int64_t>{7});
  auto nothing = client_->Compile(
      "module {\n  func.func @main(%arg0: tensor<f32>) {\n    \"func.return\"() : () -> ()\n  "
      "}\n}\n",
      {});
  EXPECT_EQ(nothing->num_outputs(), 0);
  auto in = ToDevice<float>(*client_, {1}, {DType::kF32, {}});
  EXPECT_TRUE(Launch(*nothing, {in.get()}).empty());
}

TEST_F(ConformanceTest, ManyParameters) {
  constexpr int kCount = 100;
  std::string parameters, body, last = "%arg0";
  for (int i = 0; i < kCount; ++i) {
    parameters += (i ? ", %arg" : "%arg") + std::to_string(i) + ": tensor<f32>";
    if (i == 0) continue;
    std::string sum = "%s" + std::to_string(i);
    body += "    " + sum + " = \"stablehlo.add\"(" + last + ", %arg" + std::to_string(i) +
            ") : (tensor<f32>, tensor<f32>) -> tensor<f32>\n";
    last = sum;
  }
  auto program =
      client_->Compile("module {\n  func.func @main(" + parameters + ") -> tensor<f32> {\n" + body +
                           "    \"func.return\"(" + last + ") : (tensor<f32>) -> ()\n  }\n}\n",
                       {});
  std::vector<BufferPtr> buffers;
  std::vector<Buffer*> args;
  for (int i = 0; i < kCount; ++i) {
    buffers.push_back(ToDevice<float>(*client_, {static_cast<float>(i)}, {DType::kF32, {}}));
    args.push_back(buffers.back().get());
  }
  EXPECT_EQ(ToHost<float>(*Launch(*program, args)[0]), std::vector<float>{4950});
}

TEST_F(ConformanceTest, CompileErrorsCarryThePluginsMessage) {
  Status s = StatusOf([&] { client_->Compile("this is not a module", {}); });
  EXPECT_FALSE(s.ok());
  EXPECT_TRUE(Contains(s.message, "PJRT_Client_Compile: ")) << s.message;
  s = StatusOf([&] {
    client_->Compile(
        "module {\n  func.func @main(%arg0: tensor<2xf32>) -> tensor<3xf32> {\n"
        "    %0 = \"stablehlo.add\"(%arg0, %arg0) : (tensor<2xf32>, tensor<2xf32>) -> "
        "tensor<3xf32>\n    \"func.return\"(%0) : (tensor<3xf32>) -> ()\n  }\n}\n",
        {});
  });
  EXPECT_FALSE(s.ok());
  EXPECT_TRUE(Contains(s.message, "stablehlo.add")) << s.message;
}

TEST_F(ConformanceTest, BadCompileOptions) {
  auto compile = [&](int replicas, std::vector<int> devices) {
    return StatusOf([&] { client_->Compile(AddModule(kF4Text), {replicas, devices}); }).code;
  };
  EXPECT_EQ(compile(2, {}), Code::kInvalidArgument);
  EXPECT_EQ(compile(2, {0}), Code::kInvalidArgument);
  EXPECT_EQ(compile(2, {0, 4}), Code::kInvalidArgument);
  EXPECT_EQ(compile(2, {0, -1}), Code::kInvalidArgument);
  EXPECT_EQ(compile(2, {1, 1}), Code::kInvalidArgument);
  EXPECT_EQ(compile(1, {3}), Code::kOk);
}

TEST_F(ConformanceTest, PortableProgramRunsWhereItIsTold) {
  auto program = client_->Compile(AddModule(kF4Text), {});
  for (int device = 0; device < 4; ++device) {
    BufferPtr a = F4(device);
    ExecuteOptions options;
    options.device = device;
    auto out = Launch(*program, {a.get(), a.get()}, options);
    EXPECT_EQ(out.at(0)->device(), device);
    EXPECT_EQ(ToHost<float>(*out[0]), (std::vector<float>{2, 4, 6, 8}));
    // The result is where it says: it can be an argument there.
    out = Launch(*program, {out[0].get(), a.get()}, options);
    EXPECT_EQ(ToHost<float>(*out.at(0)), (std::vector<float>{3, 6, 9, 12}));
  }
}

TEST_F(ConformanceTest, ProgramForOneNamedDevice) {
  auto program = client_->Compile(AddModule(kF4Text), {1, {2}});
  BufferPtr a = F4(2);
  auto out = Launch(*program, {a.get(), a.get()});
  EXPECT_EQ(out.at(0)->device(), 2);
  EXPECT_EQ(ToHost<float>(*out[0]), (std::vector<float>{2, 4, 6, 8}));
}

TEST_F(ConformanceTest, BadArgumentsAreNamed) {
  auto program = client_->Compile(AddModule(kF4Text), {});
  BufferPtr a = F4();
  auto launch = [&](std::vector<Buffer*> args, ExecuteOptions options = {}) {
    Status s = StatusOf([&] { program->Execute(std::span(&args, 1), options); });
    EXPECT_EQ(s.code, s.ok() ? Code::kOk : Code::kInvalidArgument) << s.message;
    return s.message;
  };
  EXPECT_EQ(launch({a.get()}), "the program has 2 parameter(s), but replica 0 got 1 argument(s)");
  EXPECT_EQ(launch({a.get(), nullptr}), "argument 1 is missing");
  BufferPtr two = ToDevice<float>(*client_, {1, 2}, kF2);
  EXPECT_EQ(launch({a.get(), two.get()}), "argument 1 must be tensor<4xf32>, but is tensor<2xf32>");
  BufferPtr ints = ToDevice<int32_t>(*client_, {1, 2, 3, 4}, {DType::kS32, {4}});
  EXPECT_EQ(launch({ints.get(), a.get()}),
            "argument 0 must be tensor<4xf32>, but is tensor<4xi32>");
  BufferPtr elsewhere = F4(3);
  EXPECT_EQ(launch({a.get(), elsewhere.get()}),
            "argument 1 must be on device 0, but is on device 3");
  ExecuteOptions out_of_range;
  out_of_range.device = 4;
  EXPECT_TRUE(Contains(launch({a.get(), a.get()}, out_of_range), "device 4 is out of range"));
  ExecuteOptions bad_index;
  bad_index.non_donatable = {2};
  EXPECT_TRUE(Contains(launch({a.get(), a.get()}, bad_index), "non_donatable index 2"));
  auto other = MakePluginClient(ConformanceLibrary(), {});
  BufferPtr foreign = ToDevice<float>(*other, {1, 2, 3, 4}, kF4);
  EXPECT_EQ(launch({a.get(), foreign.get()}), "argument 1 belongs to another client");
  auto null = MakeNullClient();
  BufferPtr unreal = ToDevice<float>(*null, {1, 2, 3, 4}, kF4);
  EXPECT_EQ(launch({a.get(), unreal.get()}), "argument 1 belongs to another client");
  std::vector<std::vector<Buffer*>> lists(2, {a.get(), a.get()});
  EXPECT_EQ(StatusOf([&] { program->Execute(lists, {}); }).code, Code::kInvalidArgument);
  EXPECT_EQ(launch({a.get(), a.get()}), "");
}

class DonationTest : public ConformanceTest, public testing::WithParamInterface<const char*> {};

TEST_P(DonationTest, DonatesUnlessToldNotTo) {
  auto program = client_->Compile(AddModule(kF4Text, GetParam()), {});
  BufferPtr a = F4(), b = F4();
  ExecuteOptions keep;
  keep.non_donatable = {0};
  auto out = Launch(*program, {a.get(), b.get()}, keep);
  EXPECT_FALSE(a->deleted());
  EXPECT_EQ(ToHost<float>(*out.at(0)), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(ToHost<float>(*a), (std::vector<float>{1, 2, 3, 4}));

  out = Launch(*program, {a.get(), b.get()});
  EXPECT_TRUE(a->deleted());
  EXPECT_FALSE(b->deleted());
  EXPECT_EQ(ToHost<float>(*out.at(0)), (std::vector<float>{2, 4, 6, 8}));

  // Use after donation.
  Status s = StatusOf([&] { Launch(*program, {b.get(), a.get()}); });
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_EQ(s.message, "argument 1 was deleted or donated before");
  EXPECT_FALSE(b->deleted());  // the refused launch donated nothing
  EXPECT_FALSE(StatusOf([&] { ToHost<float>(*a); }).ok());
}

TEST_P(DonationTest, OneBufferCannotBeDonatedAndUsed) {
  auto program = client_->Compile(AddModule(kF4Text, GetParam()), {});
  BufferPtr a = F4();
  Status s = StatusOf([&] { Launch(*program, {a.get(), a.get()}); });
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_TRUE(Contains(s.message, "same buffer")) << s.message;
  ExecuteOptions keep;
  keep.non_donatable = {0};
  EXPECT_EQ(ToHost<float>(*Launch(*program, {a.get(), a.get()}, keep).at(0)),
            (std::vector<float>{2, 4, 6, 8}));
}

// A chain of donations stays right while launches overlap.
TEST_P(DonationTest, Chain) {
  auto program = client_->Compile(AddModule(kF4Text, GetParam()), {});
  BufferPtr sum = F4(), one = ToDevice<float>(*client_, {1, 1, 1, 1}, kF4);
  for (int i = 0; i < 200; ++i) {
    std::vector<Buffer*> args{sum.get(), one.get()};
    sum = program->Execute(std::span(&args, 1), {}).outputs.at(0).at(0);
  }
  EXPECT_EQ(ToHost<float>(*sum), (std::vector<float>{201, 202, 203, 204}));
}

INSTANTIATE_TEST_SUITE_P(Attributes, DonationTest,
                         testing::Values(" {jax.buffer_donor = true}",
                                         " {tf.aliasing_output = 0 : i32}"),
                         [](const auto& info) { return info.index == 0 ? "donor" : "alias"; });

class ReplicaTest : public ConformanceTest {
 protected:
  // Returns the sum over the replicas, and the replica's number.
  ExecutablePtr CompileAllReduce(std::vector<int> devices) {
    const auto n = static_cast<int>(devices.size());
    std::string group;
    for (int i = 0; i < n; ++i) group += (i ? ", " : "") + std::to_string(i);
    return client_->Compile(
        "module @all_reduce {\n"
        "  func.func @main(%arg0: tensor<2xf32>) -> (tensor<2xf32>, tensor<ui32>) {\n"
        "    %0 = \"stablehlo.all_reduce\"(%arg0) <{replica_groups = dense<[[" +
            group + "]]> : tensor<1x" + std::to_string(n) +
            "xi64>}> ({\n"
            "    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
            "      %s = \"stablehlo.add\"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
            "      \"stablehlo.return\"(%s) : (tensor<f32>) -> ()\n"
            "    }) : (tensor<2xf32>) -> tensor<2xf32>\n"
            "    %1 = \"stablehlo.replica_id\"() : () -> tensor<ui32>\n"
            "    \"func.return\"(%0, %1) : (tensor<2xf32>, tensor<ui32>) -> ()\n  }\n}\n",
        {n, std::move(devices)});
  }

  void CheckGang(Executable& program, const std::vector<int>& devices) {
    std::vector<BufferPtr> buffers;
    std::vector<std::vector<Buffer*>> args;
    float sum = 0;
    for (int d : devices) {
      auto v = static_cast<float>(d + 1);
      sum += v;
      buffers.push_back(ToDevice<float>(*client_, {v, 10 * v}, kF2, d));
      args.push_back({buffers.back().get()});
    }
    ExecuteResult result = program.Execute(args, {});
    ASSERT_EQ(result.done.size(), devices.size());
    ASSERT_EQ(result.outputs.size(), devices.size());
    for (size_t r = 0; r < devices.size(); ++r) {
      result.done[r].Wait("the gang");
      EXPECT_EQ(result.outputs[r].at(0)->device(), devices[r]);
      EXPECT_EQ(ToHost<float>(*result.outputs[r].at(0)), (std::vector<float>{sum, 10 * sum}));
      EXPECT_EQ(ToHost<uint32_t>(*result.outputs[r].at(1)),
                std::vector<uint32_t>{static_cast<uint32_t>(r)});
    }
  }
};

TEST_F(ReplicaTest, AllReduce) {
  for (const std::vector<int>& devices :
       {std::vector<int>{0, 1}, {0, 1, 2, 3}, {1, 3}, {2, 0}, {3, 1, 0}}) {
    SCOPED_TRACE(testing::PrintToString(devices));
    auto program = CompileAllReduce(devices);
    for (int i = 0; i < 5; ++i) CheckGang(*program, devices);
  }
}

// In XLA's rendezvous, such arguments would abort the process.
TEST_F(ReplicaTest, BadArgumentOfOneReplica) {
  auto program = CompileAllReduce({0, 1});
  BufferPtr on0 = ToDevice<float>(*client_, {1, 2}, kF2, 0);
  BufferPtr on1 = ToDevice<float>(*client_, {1, 2}, kF2, 1);
  BufferPtr wrong = F4(1);
  auto launch = [&](std::vector<std::vector<Buffer*>> args) {
    Status s = StatusOf([&] { program->Execute(args, {}); });
    EXPECT_EQ(s.code, Code::kInvalidArgument);
    return s.message;
  };
  EXPECT_EQ(launch({{on0.get()}, {wrong.get()}}),
            "argument 0 of replica 1 must be tensor<2xf32>, but is tensor<4xf32>");
  EXPECT_EQ(launch({{on0.get()}, {on0.get()}}),
            "argument 0 of replica 1 must be on device 1, but is on device 0");
  EXPECT_EQ(launch({{on0.get()}}), "the program runs on 2 device(s), but got arguments for 1");
  EXPECT_EQ(launch({{on0.get()}, {}}),
            "the program has 1 parameter(s), but replica 1 got 0 argument(s)");
  CheckGang(*program, {0, 1});
}

TEST_F(ReplicaTest, SerializedOntoOtherDevices) {
  std::string bytes = CompileAllReduce({0, 1})->Serialize();
  CheckGang(*client_->Deserialize(bytes, {2, {0, 1}}), {0, 1});
  CheckGang(*client_->Deserialize(bytes, {2, {3, 2}}), {3, 2});
}

TEST_F(ConformanceTest, SerializedProgramRunsInANewClient) {
  std::string bytes =
      client_->Compile(AddModule(kF4Text, " {jax.buffer_donor = true}"), {})->Serialize();
  client_ = MakePluginClient(ConformanceLibrary(), {{"cpu_device_count", int64_t{4}}});
  auto program = client_->Deserialize(bytes, {});
  BufferPtr a = F4(1), b = F4(1);
  ExecuteOptions options;
  options.device = 1;
  EXPECT_EQ(ToHost<float>(*Launch(*program, {a.get(), b.get()}, options).at(0)),
            (std::vector<float>{2, 4, 6, 8}));
  EXPECT_TRUE(a->deleted());
  // Parameters' types came along.
  BufferPtr two = ToDevice<float>(*client_, {1, 2}, kF2, 1);
  Status s = StatusOf([&] { Launch(*program, {b.get(), two.get()}, options); });
  EXPECT_EQ(s.message, "argument 1 must be tensor<4xf32>, but is tensor<2xf32>");
}

TEST_F(ConformanceTest, DamagedExecutableIsRefused) {
  std::string bytes = client_->Compile(AddModule(kF4Text), {})->Serialize();
  std::string damaged = bytes;
  damaged[bytes.size() / 2] = static_cast<char>(~damaged[bytes.size() / 2]);
  for (const std::string& bad :
       {damaged, bytes.substr(0, bytes.size() - 1), std::string("x"), std::string(),
        MakeNullClient()->Compile(AddModule(kF4Text), {})->Serialize()}) {
    EXPECT_FALSE(StatusOf([&] { client_->Deserialize(bad, {}); }).ok());
  }
  EXPECT_EQ(StatusOf([&] { client_->Deserialize(damaged, {}); }).code, Code::kDataLoss);
}

TEST_F(ConformanceTest, MemoryOfAProgram) {
  auto memory = client_->Compile(AddModule(kF4Text), {})->memory();
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->argument, 32);
  EXPECT_EQ(memory->output, 16);
}

TEST_F(ConformanceTest, MemoryStatsAreAbsentOrPlausible) {
  BufferPtr a = F4();
  auto stats = client_->memory_stats(0);
  EXPECT_GE(stats.value_or(MemoryStats{16, {}, {}}).bytes_in_use, 16);
  EXPECT_EQ(StatusOf([&] { client_->memory_stats(4); }).code, Code::kInvalidArgument);
}

TEST_F(ConformanceTest, EventsBeforeAndAfterCompletion) {
  auto slow = CompileSlow();
  BufferPtr in = SlowInput();
  std::vector<Buffer*> args{in.get()};
  auto result = slow->Execute(std::span(&args, 1), {});
  EXPECT_FALSE(result.done[0].Ready());  // else the launch was not asynchronous
  std::atomic<int> called{0};
  result.done[0].OnReady([&](const Status& s) { called += s.ok() ? 1 : 100; });
  Event copy = result.done[0];
  copy.Wait("the slow program");
  EXPECT_TRUE(result.done[0].Ready());
  result.done[0].OnReady([&](const Status& s) { called += s.ok() ? 10 : 100; });
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (called != 11 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(called, 11);
}

TEST_F(ConformanceTest, WaitsEndAfterTheirTimeLimit) {
  auto slow = CompileSlow();
  BufferPtr in = SlowInput();
  std::vector<Buffer*> args{in.get()};
  auto result = slow->Execute(std::span(&args, 1), {});
  {
    ScopedEnv limit("XLA_WAIT_TIMEOUT_S", "0.1");
    Status s = StatusOf([&] { result.done[0].Wait("the slow program"); });
    EXPECT_EQ(s.code, Code::kDeadlineExceeded);
    EXPECT_TRUE(Contains(s.message, "the slow program")) << s.message;
  }
  EXPECT_TRUE(StatusOf([&] { result.done[0].Wait("the slow program"); }).ok());
}

TEST_F(ConformanceTest, WaitsCanBeInterrupted) {
  auto slow = CompileSlow();
  BufferPtr in = SlowInput();
  std::vector<Buffer*> args{in.get()};
  auto result = slow->Execute(std::span(&args, 1), {});
  SetInterruptCheck([] { return true; });
  Status s = StatusOf([&] { result.done[0].Wait("the slow program"); });
  SetInterruptCheck({});
  EXPECT_EQ(s.code, Code::kCancelled);
  EXPECT_TRUE(StatusOf([&] { result.done[0].Wait("the slow program"); }).ok());
}

TEST_F(ConformanceTest, EverythingMayGoWhileWorkIsInFlight) {
  auto slow = CompileSlow(5000);
  BufferPtr in = SlowInput();
  std::vector<Buffer*> args{in.get()};
  auto result = slow->Execute(std::span(&args, 1), {});
  auto done = std::make_shared<std::atomic<int>>(0);
  result.done[0].OnReady([done](const Status&) { ++*done; });
  in.reset();
  slow.reset();
  client_.reset();
  result.outputs.clear();
  EXPECT_TRUE(StatusOf([&] { result.done[0].Wait("the orphan"); }).ok());
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (*done != 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(*done, 1);
}

TEST_F(ConformanceTest, CloseWithLiveObjects) {
  auto program = client_->Compile(AddModule(kF4Text), {});
  BufferPtr a = F4();
  auto out = Launch(*program, {a.get(), a.get()});
  client_->Close();
  client_->Close();
  std::vector<Buffer*> args{a.get(), a.get()};
  float host[4];
  EXPECT_TRUE(a->deleted());
  EXPECT_EQ(StatusOf([&] { a->CopyToHost(host); }).code, Code::kFailedPrecondition);
  EXPECT_EQ(StatusOf([&] { a->ReadyEvent(); }).code, Code::kFailedPrecondition);
  EXPECT_EQ(StatusOf([&] { program->Execute(std::span(&args, 1), {}); }).code,
            Code::kFailedPrecondition);
  EXPECT_EQ(StatusOf([&] { program->Serialize(); }).code, Code::kFailedPrecondition);
  EXPECT_EQ(StatusOf([&] { client_->Compile(AddModule(kF4Text), {}); }).code,
            Code::kFailedPrecondition);
  EXPECT_EQ(StatusOf([&] { F4(); }).code, Code::kFailedPrecondition);
}

TEST_F(ConformanceTest, AForkedChildIsRefusedAndLeavesQuietly) {
  auto program = client_->Compile(AddModule(kF4Text), {});
  BufferPtr a = F4();
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::vector<Buffer*> args{a.get(), a.get()};
    bool refused = StatusOf([&] { program->Execute(std::span(&args, 1), {}); }).code ==
                       Code::kFailedPrecondition &&
                   StatusOf([&] { F4(); }).code == Code::kFailedPrecondition &&
                   StatusOf([&] { MakePluginClient(ConformanceLibrary(), {}); }).code ==
                       Code::kFailedPrecondition;
    a.reset();
    program.reset();
    client_.reset();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(ToHost<float>(*Launch(*program, {a.get(), a.get()}).at(0)),
            (std::vector<float>{2, 4, 6, 8}));
}

TEST_F(ConformanceTest, ThreadsShareAClient) {
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto program = client_->Compile(AddModule(kF4Text), {});
      ExecuteOptions options;
      options.device = t % 2;
      for (int i = 0; i < 20; ++i) {
        BufferPtr a = F4(options.device);
        auto out = Launch(*program, {a.get(), a.get()}, options);
        right += ToHost<float>(*out.at(0)) == std::vector<float>{2, 4, 6, 8};
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(right, 80);
}

}  // namespace
}  // namespace torch_xla::pjrt
