// Tensor states, views and the executor over the null client: what is compiled, launched and kept.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/metrics.h"
#include "lazy/compile_cache.h"
#include "lazy/effects.h"
#include "lazy_testing.h"

namespace torch_xla::lazy {
namespace {

using namespace std::chrono_literals;

TEST_F(Executor, RecordsWithoutRunning) {
  Tensor x = Upload();
  Tensor y = Add(x, x);
  EXPECT_FALSE(Computed(y));
  EXPECT_EQ(client_->compile_count(), 0);
  EXPECT_EQ(client_->execute_count(), 0);
}

TEST_F(Executor, EqualStepsCompileOnce) {
  Tensor w = Upload();
  for (int i = 0; i < 5; ++i) {
    w.Write(AddValues(w.value(), Upload().value()));
    Sync(0, true);
  }
  EXPECT_EQ(client_->compile_count(), 1);
  EXPECT_EQ(client_->execute_count(), 5);
}

TEST_F(Executor, SyncComputesWhatIsAliveAndOnlyThat) {
  Tensor x = Upload();
  Tensor kept = Add(x, x);
  { Tensor dead = Add(kept, kept); }
  Sync(0, true);
  EXPECT_TRUE(Computed(kept));
  EXPECT_EQ(metrics::MetricData("TensorsGraphSize")->samples.back().second, 2);  // leaf and sum
}

TEST_F(Executor, SyncWithNothingPendingLaunchesNothing) {
  Tensor x = Upload();
  Sync(0, true);
  EXPECT_EQ(client_->execute_count(), 0);
}

TEST_F(Executor, AReadAlsoComputesWhatIsAliveBehindItSoThatNothingRunsTwice) {
  Tensor x = Upload();
  Tensor saved = Add(x, x);
  Tensor loss = Add(saved, saved);
  Tensor other = Add(x, saved);  // pending outside of loss
  Materialize({&loss, 1});
  EXPECT_TRUE(Computed(loss));
  EXPECT_TRUE(Computed(saved));
  EXPECT_FALSE(Computed(other));
  Sync(0, true);
  // `other` was one sum over two buffers.
  EXPECT_EQ(metrics::MetricData("TensorsGraphSize")->samples.back().second, 3);
}

TEST_F(Executor, AReadComputesDeadNodesThatOthersStillNeed) {
  Tensor x = Upload();
  Tensor a, b;
  {
    Tensor shared = Add(x, x);
    a = Add(shared, shared);
    b = Add(shared, x);
  }
  Materialize({&a, 1});
  Sync(0, true);
  EXPECT_TRUE(Computed(b));
  EXPECT_EQ(metrics::MetricData("TensorsGraphSize")->samples.back().second, 3);  // not 4
}

TEST_F(Executor, OnlyTheLiveOutputsOfANodeAreResults) {
  Tensor x = Upload();
  ir::Value in = x.value();
  Shape shapes[] = {kShape, kShape};
  Ref<ir::Node> node = ir::Node::Make(kTwo, {&in, 1}, shapes, {});
  Tensor second({node, 1}, 0);
  node = nullptr;
  Sync(0, true);
  EXPECT_TRUE(Computed(second));
  EXPECT_NE(client_->last_module().find("-> (tensor<4xf32>)"), std::string::npos)
      << client_->last_module();
}

TEST_F(Executor, TensorsWithOneValueShareOneResult) {
  Tensor x = Upload();
  Tensor a = Add(x, x);
  Tensor b(a.value(), 0);  // clone
  Sync(0, true);
  EXPECT_TRUE(Computed(a));
  EXPECT_TRUE(Computed(b));
  b.Write(AddValues(b.value(), x.value()));
  EXPECT_TRUE(Computed(a));
  EXPECT_NE(a.alias_id(), b.alias_id());
}

TEST_F(Executor, AFailedCompileLosesNothing) {
  Tensor x = Upload();
  Tensor y = Add(x, x);
  client_->FailNextCompile({Code::kUnimplemented, "no such instruction"});
  try {
    Sync(0, true);
    FAIL() << "the compiler's error did not surface";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kUnimplemented);
    EXPECT_NE(std::string(e.what()).find("no such instruction"), std::string::npos);
  }
  EXPECT_FALSE(Computed(y));
  Sync(0, true);
  EXPECT_TRUE(Computed(y));
  EXPECT_EQ(client_->execute_count(), 1);
}

TEST_F(Executor, AFailedLaunchSurfacesAtTheNextUse) {
  Tensor x = Upload();
  Tensor y = Add(x, x);
  client_->FailNextExecute({Code::kResourceExhausted, "out of memory"});
  Sync(0, false);
  std::vector<float> host(4);
  void* dst = host.data();
  try {
    ToHost({&y, 1}, {&dst, 1});
    FAIL() << "the failure did not surface";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kResourceExhausted);
  }
  // Others go on.
  Tensor z = Add(x, x);
  ToHost({&z, 1}, {&dst, 1});
}

TEST_F(Executor, UsersOfAFailedResultFailWithItsError) {
  Tensor x = Upload();
  Tensor y = Add(x, x);
  client_->FailNextExecute({Code::kInternal, "first failure"});
  Sync(0, false);
  Tensor z = Add(y, y);
  std::vector<float> host(4);
  void* dst = host.data();
  try {
    ToHost({&z, 1}, {&dst, 1});
    FAIL() << "the failure did not surface";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("first failure"), std::string::npos);
  }
}

TEST_F(Executor, CtrlCDuringACompileChangesNothingAndItsResultIsUsedLater) {
  Tensor x = Upload();
  Tensor y = Add(x, x);
  client_->SetCompileDelay(600ms);
  SetInterruptCheck([] { return true; });
  auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(Sync(0, true), Interrupted);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 400ms);
  EXPECT_FALSE(Computed(y));
  SetInterruptCheck({});
  Sync(0, true);
  EXPECT_TRUE(Computed(y));
  EXPECT_EQ(client_->compile_count(), 1);
}

TEST_F(Executor, RunsAheadOfAtMostTwoUnfinishedSteps) {
  client_->SetManualCompletion(true);
  Tensor w = Upload();
  std::atomic<int> synced{0};
  std::thread user([&] {
    for (int i = 0; i < 5; ++i) {
      w.Write(AddValues(w.value(), w.value()));
      Sync(0, false);
      ++synced;
    }
  });
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(synced.load(), 3);  // two unfinished and the one just launched
  for (int done = 0; done < 5;) {
    done += client_->CompleteNext() ? 1 : 0;
    std::this_thread::sleep_for(10ms);
  }
  user.join();
  EXPECT_EQ(synced.load(), 5);
}

TEST_F(Executor, AWaitThatNeverEndsSaysWhatItWaitedFor) {
  client_->SetManualCompletion(true);
  setenv("XLA_WAIT_TIMEOUT_S", "0.2", 1);
  Tensor x = Upload();
  Tensor y = Add(x, x);
  try {
    Sync(0, true);
    FAIL() << "the wait ended";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kDeadlineExceeded);
    EXPECT_NE(std::string(e.what()).find("unfinished executions on xla:0"), std::string::npos)
        << e.what();
  }
  unsetenv("XLA_WAIT_TIMEOUT_S");
}

TEST_F(Executor, OneGraphIsCompiledOnceWhoeverAsks) {
  client_->SetCompileDelay(100ms);
  Runtime::Get();
  std::vector<std::thread> threads;
  for (int d = 0; d < 4; ++d) {
    threads.emplace_back([d] {
      Tensor x = Upload(d);
      Tensor y = Add(x, x);
      Sync(d, true);
      EXPECT_TRUE(Computed(y));
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(client_->compile_count(), 1);
  EXPECT_EQ(client_->execute_count(), 4);
}

TEST_F(Executor, ThreadsRecordSideBySideOnOneDevice) {
  Tensor shared = Upload();
  std::vector<std::thread> threads;
  std::atomic<bool> stop{false};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      Tensor acc = shared;
      Tensor view = shared.View({ViewKind::kReshape, kShape.with(Dims{2, 2}), {}, {}});
      Tensor sum(view.value(), 0);
      for (int i = 0; i < 300; ++i) {
        sum = Add(sum, view);
        acc = Add(acc, shared);
      }
      Materialize({&sum, 1});
      EXPECT_TRUE(Computed(sum));
    });
  }
  threads.emplace_back([&] {
    while (!stop) Sync(0, false);
  });
  for (int t = 0; t < 3; ++t) threads[static_cast<size_t>(t)].join();
  stop = true;
  threads.back().join();
}

TEST_F(Executor, DeletedTensorsLeaveTheRegistryAndTheDevice) {
  size_t before = Registry::Of(0).size();
  {
    Tensor x = Upload();
    Tensor y = Add(x, x);
    Sync(0, true);
    EXPECT_EQ(Registry::Of(0).size(), before + 2);
  }
  EXPECT_EQ(Registry::Of(0).size(), before);
  Runtime::Get().launcher(0).Drain();  // it may still be letting go of the launch
  EXPECT_EQ(client_->memory_stats(0)->bytes_in_use, 0);
}

TEST_F(Executor, UploadToADeviceThatDoesNotExistSaysSo) { EXPECT_THROW(Upload(7), Error); }

// ---- Views.

TEST_F(Executor, ViewsSeeWritesToTheirBaseAndTheOtherWayRound) {
  Tensor x = Upload();
  Tensor v = x.View({ViewKind::kReshape, kShape.with(Dims{2, 2}), {}, {}});
  EXPECT_TRUE(v.is_view());
  EXPECT_EQ(v.alias_id(), x.alias_id());
  ir::Value before = v.value();
  EXPECT_EQ(v.value().node, before.node);  // cached
  ir::Value sum = AddValues(x.value(), x.value());
  x.Write(sum);
  ASSERT_EQ(v.value().node->num_operands(), 1u);
  EXPECT_EQ(v.value().node->operand(0).node, sum.node);
  ir::Value doubled = AddValues(v.value(), v.value());
  v.Write(doubled);
  EXPECT_EQ(v.value().node, doubled.node);  // no replay of what was just written
  EXPECT_EQ(x.value().node->operand(1).node, doubled.node);
}

TEST_F(Executor, CachedViewsAreNoResultsOfAStep) {
  Tensor x = Upload();
  Tensor y = Add(x, x);
  Tensor v = y.View({ViewKind::kReshape, kShape.with(Dims{2, 2}), {}, {}});
  Tensor sum = Add(v, v);
  Sync(0, true);
  EXPECT_NE(client_->last_module().find("-> (tensor<4xf32>, tensor<2x2xf32>)"), std::string::npos)
      << client_->last_module();
  // Read again, the view stands on the computed base.
  EXPECT_EQ(v.value().node->operand(0).node->kind(), ir::OpKind::kData);
}

TEST_F(Executor, MovingAPositionCompilesNothing) {
  Tensor x = Upload();
  for (int64_t i = 0; i < 4; ++i) {
    ir::Value at{ir::Node::MakeScalar(DType::kS64, i), 0};
    Tensor v = x.View({ViewKind::kDynamicSlice, kShape.with(Dims{1}), {0}, at});
    v.Write(AddValues(v.value(), v.value()));
    Sync(0, true);
  }
  EXPECT_EQ(client_->compile_count(), 1);
}

TEST_F(Executor, AProgramOfAllProcessesHasAReplicaInEach) {
  client_->SetProcessDevices({0, 8, 16});
  static const ir::OpDef across("test::across", LowerAdd);
  SetAcrossProcesses(across);
  Tensor x = Upload();
  Tensor alone = Add(x, x);
  Sync(0, true);
  EXPECT_EQ(client_->last_options().num_replicas, 1);
  EXPECT_TRUE(client_->last_options().devices.empty());
  ir::Value operands[] = {x.value(), x.value()};
  Tensor sum({ir::Node::Make(across, operands, kShape), 0}, 0);
  Tensor more = Add(sum, x);
  Sync(0, true);
  EXPECT_EQ(client_->last_options().num_replicas, 3);
  EXPECT_EQ(client_->last_options().devices, std::vector<int>{0});
  EXPECT_TRUE(Computed(more));
}

TEST_F(Executor, TheCacheForgetsTheLeastRecentlyUsed) {
  setenv("XLA_COMPILATION_CACHE_SIZE", "2", 1);
  auto step = [](int64_t n) {
    Tensor x = Upload(0, kShape.with(Dims{n}));
    Tensor y = Add(x, x);
    Sync(0, true);
  };
  step(1);
  step(2);
  step(1);
  step(3);  // 2 goes
  EXPECT_EQ(client_->compile_count(), 3);
  step(1);
  EXPECT_EQ(client_->compile_count(), 3);
  step(2);
  EXPECT_EQ(client_->compile_count(), 4);
  EXPECT_EQ(CompileCache::Global().size(), 2u);
  unsetenv("XLA_COMPILATION_CACHE_SIZE");
}

}  // namespace
}  // namespace torch_xla::lazy
