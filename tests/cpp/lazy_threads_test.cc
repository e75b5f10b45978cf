// Threads that record on one device: each one's sync is its own step.
#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "base/metrics.h"
#include "lazy/effects.h"
#include "lazy_testing.h"

namespace torch_xla::lazy {
namespace {

class Threads : public Executor {};

// Hands the turn back and forth between the test and one thread.
class Turns {
 public:
  void Other() {
    other_.release();
    mine_.acquire();
  }
  void Start() { other_.acquire(); }
  void Back() {
    mine_.release();
    other_.acquire();
  }
  void End() { mine_.release(); }

 private:
  std::binary_semaphore mine_{0}, other_{0};
};

TEST_F(Threads, ASyncLeavesOutWhatAnotherThreadIsStillRecording) {
  Tensor x = Upload();
  Turns turns;
  std::thread other([&] {
    turns.Start();
    Tensor half = Add(x, x);
    turns.Back();
    EXPECT_FALSE(Computed(half));
    Tensor whole = Add(half, x);
    Sync(0, true);
    EXPECT_TRUE(Computed(half));
    EXPECT_TRUE(Computed(whole));
    turns.End();
  });
  Sync(0, true);
  turns.Other();
  Tensor mine = Add(x, x);
  Sync(0, true);
  EXPECT_TRUE(Computed(mine));
  turns.Other();
  other.join();
}

TEST_F(Threads, TwoThreadsThatTrainSideBySideCompileOneProgramEach) {
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 2; ++t) {
    threads.emplace_back([t] {
      Tensor w = Upload(0, kShape.with(Dims{4 + t}));
      for (int i = 0; i < 200; ++i) {
        Tensor view = w.View({ViewKind::kReshape, w.value().shape(), {}, {}});
        Tensor grad = Add(view, w), kept = Add(grad, view);
        std::this_thread::yield();
        w.Write(AddValues(w.value(), Add(grad, kept).value()));
        Sync(0, false);
      }
      Sync(0, true);
    });
  }
  for (std::thread& t : threads) t.join();
  // The first steps may meet before anybody has synced.
  EXPECT_LE(client_->compile_count(), 4);
}

TEST_F(Threads, WhatThreadsLeftWhenTheyEndedIsTaken) {
  Tensor x = Upload();
  Tensor left;
  std::thread([&] { left = Add(x, x); }).join();
  Sync(0, true);
  EXPECT_TRUE(Computed(left));
}

TEST_F(Threads, AThreadThatNeverSyncsHasOthersDoIt) {
  Tensor x = Upload();
  Turns turns;
  std::atomic<bool> stop{false};
  Tensor latest;
  std::thread other([&] {
    turns.Start();
    while (!stop) {
      latest = Add(x, x);
      turns.Back();
    }
    turns.End();
  });
  Sync(0, true);
  for (int i = 0; i < 6; ++i) {
    turns.Other();
    Sync(0, true);
    if (i >= 3) {
      EXPECT_TRUE(Computed(latest)) << i;
    }
  }
  stop = true;
  turns.Other();
  other.join();
}

// A copy to the device makes a tensor and then writes it; a loader's thread is anywhere in that.
TEST_F(Threads, ALoadersBlankTensorsAreNoPartOfTheStep) {
  static const ir::OpDef blank_op("test::blank", LowerAdd);
  Tensor w = Upload();
  Turns turns;
  std::atomic<bool> stop{false};
  std::thread loader([&] {
    turns.Start();
    while (!stop) {
      Tensor blank({ir::Node::Make(blank_op, {}, kShape), 0}, 0);
      turns.Back();
      EXPECT_FALSE(Computed(blank));
      blank.Write(Upload().value());
    }
    turns.End();
  });
  for (int i = 0; i < 10; ++i) {
    turns.Other();
    w.Write(AddValues(w.value(), w.value()));
    Sync(0, true);
    EXPECT_TRUE(Computed(w));
  }
  stop = true;
  turns.Other();
  loader.join();
  EXPECT_EQ(client_->compile_count(), 1);
}

// Read or sync: what another thread records on a collective's result runs with it, for it runs
// once; the rest is that thread's.
TEST_F(Threads, AnEffectTakesAlongWhatHangsOnIt) {
  static const ir::OpDef effect_op("test::effect", LowerAdd);
  RegisterEffect(effect_op);
  Tensor x = Upload();
  Tensor effect, hanging, apart;
  Turns turns;
  std::thread other([&] {
    turns.Start();
    for (int i = 0; i < 2; ++i) {
      hanging = Add(effect, x);
      apart = Add(x, x);
      turns.Back();
    }
    turns.End();
  });
  for (bool read : {false, true}) {
    ir::Value operands[] = {x.value(), x.value()};
    effect = Tensor({ir::Node::Make(effect_op, operands, kShape), 0}, 0);
    turns.Other();
    Tensor mine = Add(x, x);
    if (read) {
      Materialize({&effect, 1});
    } else {
      Sync(0, true);
    }
    EXPECT_TRUE(Computed(effect) && Computed(hanging) && Computed(mine)) << read;
    EXPECT_FALSE(Computed(apart)) << read;
  }
  turns.Other();
  other.join();
}

TEST_F(Threads, WhatWasRecordedBeforeTheThreadBeganIsTaken) {
  Tensor x = Upload();
  Tensor before = Add(x, x);
  std::thread([&] {
    Sync(0, true);
    EXPECT_TRUE(Computed(before));
  }).join();
}

TEST_F(Threads, AReadComputesWhatItNeedsWhoeverRecordedIt) {
  Tensor x = Upload();
  Tensor theirs;
  Turns turns;
  std::thread other([&] {
    turns.Start();
    theirs = Add(x, x);
    turns.Back();
    turns.End();
  });
  turns.Other();
  Tensor mine = Add(theirs, x);
  Sync(0, true);
  EXPECT_TRUE(Computed(mine));
  EXPECT_TRUE(Computed(theirs));  // on the way
  turns.Other();
  other.join();
}

}  // namespace
}  // namespace torch_xla::lazy
