// Donation: which buffers a launch takes over, and what it leaves alone.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "hlo/movement.h"
#include "lazy/data.h"
#include "lazy_testing.h"

namespace torch_xla::lazy {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kBytes = 16;  // of kShape

class Donation : public Executor {
 protected:
  int64_t InUse() { return client_->memory_stats(0)->bytes_in_use; }
  bool Compiled(const std::string& text) {
    return client_->last_module().find(text) != std::string::npos;
  }
};

void LowerHuge(const ir::Node& n, hlo::Builder&, std::span<const hlo::Value> in,
               std::vector<hlo::Value>& out) {
  out.push_back(hlo::BroadcastInDim(hlo::Reshape(hlo::Slice(in[0], {0}, {1}, {1}), Dims{}),
                                    n.shape().dims, {}));
}
const ir::OpDef kHuge("test::huge", LowerHuge);

void Read(const Tensor& t) {
  std::vector<float> host(4);
  void* dst = host.data();
  ToHost({&t, 1}, {&dst, 1});
}

TEST_F(Donation, AnUpdateTakesOverTheBufferOfItsOldValue) {
  Tensor w = Upload();
  client_->SetManualCompletion(true);
  w.Write(AddValues(w.value(), Upload().value()));
  Sync(0, false);
  Runtime::Get().launcher(0).Drain();
  EXPECT_TRUE(Compiled("tf.aliasing_output = 0")) << client_->last_module();
  // The launch is unfinished, and yet the old value is gone: only the result is there.
  EXPECT_EQ(InUse(), kBytes);
}

TEST_F(Donation, AnOldValueThatAnotherTensorHasIsLeftAlone) {
  Tensor w = Upload();
  for (int i = 0; i < 3; ++i) {
    Tensor before(w.value(), 0);  // clone
    w.Write(AddValues(w.value(), w.value()));
    Sync(0, true);
    Read(before);
    Read(w);
    EXPECT_EQ(InUse(), 2 * kBytes);
  }
  EXPECT_EQ(client_->compile_count(), 1);
  w.Write(AddValues(w.value(), w.value()));
  Sync(0, true);
  EXPECT_EQ(client_->compile_count(), 1);  // with and without donation: one program
}

TEST_F(Donation, ViewsOfTheUpdatedTensorReadItsNewValue) {
  Tensor w = Upload();
  Tensor v = w.View({ViewKind::kReshape, kShape.with(Dims{2, 2}), {}, {}});
  for (int i = 0; i < 3; ++i) {
    v.Write(AddValues(v.value(), v.value()));
    Sync(0, true);
    Read(v);
    Read(w);
  }
}

TEST_F(Donation, RunningAheadDonatesEachStepsResultToTheNext) {
  client_->SetManualCompletion(true);
  Tensor w = Upload();
  for (int i = 0; i < 3; ++i) {
    w.Write(AddValues(w.value(), w.value()));
    Sync(0, false);
  }
  Runtime::Get().launcher(0).Drain();
  EXPECT_EQ(client_->pending_launches(), 3u);
  EXPECT_EQ(InUse(), kBytes);
}

TEST_F(Donation, OneBufferAsTwoParametersIsNotDonated) {
  auto data = MakeRef<Data>(kShape, 0);
  std::vector<float> zeros(4);
  data->Set(Runtime::Get().client().BufferFromHost(zeros.data(), kShape, 0,
                                                   pjrt::HostBuffer::kCopiedDuringCall));
  Tensor a({ir::Node::MakeData(kShape, data), 0}, 0);
  Tensor b({ir::Node::MakeData(kShape, data), 0}, 0);
  data = nullptr;
  ir::Value sum = AddValues(a.value(), b.value());
  a.Write(sum);
  b.Write(AddValues(b.value(), sum));
  Sync(0, true);
  Read(a);
  Read(b);
}

TEST_F(Donation, AReaderInAnotherThreadKeepsItsBuffer) {
  Tensor w = Upload();
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) Read(w);
  });
  for (int i = 0; i < 300; ++i) {
    w.Write(AddValues(w.value(), w.value()));
    Sync(0, false);
  }
  stop = true;
  reader.join();
  Read(w);
}

TEST_F(Donation, AFailedLaunchNeverExposesADonatedBuffer) {
  Tensor w = Upload();
  Tensor other = Upload();
  client_->FailNextResult({Code::kInternal, "lost"});
  w.Write(AddValues(w.value(), w.value()));
  Sync(0, true);
  for (int i = 0; i < 2; ++i) {
    try {
      Read(w);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("lost"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("test::add"), std::string::npos) << e.what();
    }
  }
  Read(other);
}

TEST_F(Donation, ATakenBufferSaysSo) {
  auto data = MakeRef<Data>(kShape, 0);
  std::vector<float> zeros(4);
  data->Set(Runtime::Get().client().BufferFromHost(zeros.data(), kShape, 0,
                                                   pjrt::HostBuffer::kCopiedDuringCall));
  EXPECT_TRUE(data->Take(/*dies=*/true).last);
  EXPECT_THROW(data->Wait(), Error);
  EXPECT_THROW(data->Take(true), Error);
}

TEST_F(Donation, ResultsThatAreNoUpdatesTakeOnlyWhatDies) {
  Tensor x = Upload();
  Tensor y = Add(x, x);
  Sync(0, true);
  EXPECT_FALSE(Compiled("aliasing_output")) << client_->last_module();
  EXPECT_FALSE(Compiled("buffer_donor")) << client_->last_module();
  Tensor z;
  {
    Tensor dying = Upload(0, kShape.with(Dims{2, 3}));
    z = Add(dying, dying);
  }
  Sync(0, true);
  EXPECT_TRUE(Compiled("aliasing_output = 0")) << client_->last_module();
}

// ---- Failures: who depends on them and who does not.

TEST_F(Donation, WhatDoesNotDependOnAFailureIsComputedInTheSameLaunch) {
  Tensor x = Upload();
  Tensor y = Add(x, x);
  client_->FailNextExecute({Code::kInternal, "first failure"});
  Sync(0, false);
  Tensor bad = Add(y, x), good = Add(x, x), worse = Add(bad, good);
  Sync(0, false);
  Read(good);
  for (const Tensor* t : {&y, &bad, &worse}) {
    try {
      Read(*t);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInternal);
      EXPECT_NE(std::string(e.what()).find("first failure"), std::string::npos) << e.what();
    }
  }
  Read(x);
}

TEST_F(Donation, AnAsynchronousFailureReachesItsUsersAsTheFirstError) {
  Tensor x = Upload();
  client_->SetManualCompletion(true);
  client_->FailNextResult({Code::kDataLoss, "first failure"});
  Tensor y = Add(x, x);
  Sync(0, false);
  Runtime::Get().launcher(0).Drain();
  client_->CompleteNext();
  client_->SetManualCompletion(false);
  Tensor z = Add(y, y);
  Sync(0, true);
  try {
    Read(z);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kDataLoss);
    EXPECT_NE(std::string(e.what()).find("first failure"), std::string::npos) << e.what();
  }
  Read(x);
}

TEST_F(Donation, WhatCannotFitIsRefusedBeforeAnythingIsGivenAway) {
  client_->SetBytesLimit(int64_t{1} << 30);
  Tensor w = Upload();
  w.Write(AddValues(w.value(), w.value()));
  {
    ir::Value one = w.value();
    Shape huge[] = {{DType::kF32, {int64_t{1} << 40}}};
    Tensor t({ir::Node::Make(kHuge, {&one, 1}, huge, {}), 0}, 0);
    try {
      Sync(0, true);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kResourceExhausted);
      EXPECT_NE(std::string(e.what()).find("Tried to allocate 4096.00 GiB"), std::string::npos)
          << e.what();
      EXPECT_NE(std::string(e.what()).find("test::huge"), std::string::npos) << e.what();
    }
    EXPECT_FALSE(Computed(w));
  }
  Sync(0, true);  // it is gone
  Read(w);
}

TEST_F(Donation, AfterShutdownNothingOfTheRuntimeIsToBeHad) {
  Tensor x = Upload();
  Runtime::Shutdown();
  EXPECT_EQ(Runtime::GetIfCreated(), nullptr);
  EXPECT_THROW(Runtime::Get(), Error);
  EXPECT_THROW(Sync(0, true), Error);
}

}  // namespace
}  // namespace torch_xla::lazy
