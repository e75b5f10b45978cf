// The base layer: dimensions, hashes, flags, metrics, waits.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/flags.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "base/shape.h"
#include "base/wait.h"

namespace torch_xla {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

template <typename F>
Status StatusOf(F&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {};
}

std::vector<int64_t> Values(const Dims& d) { return {d.begin(), d.end()}; }

TEST(DimsTest, InlineAndHeapHoldTheSameValues) {
  for (size_t n : {0u, 1u, 6u, 7u, 40u}) {
    Dims d;
    std::vector<int64_t> expected;
    for (size_t i = 0; i < n; ++i) {
      d.push_back(static_cast<int64_t>(i * 3));
      expected.push_back(static_cast<int64_t>(i * 3));
    }
    EXPECT_EQ(Values(d), expected);
    Dims copy = d;
    EXPECT_EQ(copy, d);
    Dims moved = std::move(copy);
    EXPECT_EQ(moved, d);
    EXPECT_TRUE(copy.empty());  // NOLINT: a moved-from Dims is empty
    copy = moved;
    EXPECT_EQ(copy, d);
    Dims other{9, 9};
    other = std::move(copy);
    EXPECT_EQ(other, d);
  }
}

TEST(DimsTest, CopyIsIndependent) {
  Dims a(8, 1);
  Dims b = a;
  b[7] = 2;
  EXPECT_EQ(a[7], 1);
  EXPECT_FALSE(a == b);
  Dims& alias = a;
  a = alias;
  EXPECT_EQ(a, Dims(8, 1));
}

TEST(DimsTest, InsertEraseResize) {
  Dims d{1, 2, 3, 4, 5, 6};
  d.insert(0, 0);  // grows onto the heap
  EXPECT_EQ(Values(d), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  d.insert(7, 7);
  d.insert(3, -1);
  EXPECT_EQ(Values(d), (std::vector<int64_t>{0, 1, 2, -1, 3, 4, 5, 6, 7}));
  d.erase(3);
  d.erase(0);
  d.erase(6);
  EXPECT_EQ(Values(d), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  d.resize(2);
  d.resize(4, 9);
  EXPECT_EQ(Values(d), (std::vector<int64_t>{1, 2, 9, 9}));
  EXPECT_EQ(d.back(), 9);
  d.clear();
  EXPECT_EQ(d, Dims());
}

TEST(ShapeTest, CountsAndPrints) {
  Shape s{DType::kF32, {2, 3}};
  EXPECT_EQ(s.numel(), 6);
  EXPECT_EQ(s.bytes(), 24u);
  EXPECT_EQ(ToString(s), "tensor<2x3xf32>");
  EXPECT_EQ(ToString(Span(s.dims)), "[2, 3]");
  EXPECT_EQ(ToString(Shape{DType::kC64, {}}), "tensor<complex<f32>>");
  EXPECT_EQ((Shape{DType::kS64, {5, 0}}).bytes(), 0u);
  EXPECT_EQ((Shape{DType::kBool, {}}).numel(), 1);
  EXPECT_FALSE(s == s.with(DType::kS32));
  EXPECT_FALSE(s == s.with(Dims{3, 2}));
  EXPECT_EQ(s, s.with(DType::kF64).with(DType::kF32));
}

TEST(DTypeTest, NamesAreDistinctAndKindsPartition) {
  std::set<std::string> hlo, torch;
  for (int i = 0; i < kNumDTypes; ++i) {
    auto t = static_cast<DType>(i);
    hlo.insert(HloName(t));
    torch.insert(TorchName(t));
    EXPECT_EQ((t == DType::kBool) + IsSigned(t) + IsUnsigned(t) + IsFloat(t) + IsComplex(t), 1)
        << HloName(t);
    EXPECT_EQ(ByteSize(t), IsComplex(t) ? 2 * ByteSize(RealPart(Stored(t))) : ByteSize(t));
    EXPECT_EQ(ByteSize(t), ByteSize(Stored(t)));
    EXPECT_EQ(std::string(HloName(t)), HloName(Stored(t)));
    EXPECT_EQ(ComplexOf(RealPart(t)) == t, IsComplex(t)) << TorchName(t);
  }
  EXPECT_EQ(hlo.size(), static_cast<size_t>(kNumDTypes - 1));  // C32 has that of C64
  EXPECT_EQ(torch.size(), static_cast<size_t>(kNumDTypes));
  EXPECT_EQ(RealPart(DType::kC128), DType::kF64);
  EXPECT_EQ(RealPart(DType::kC32), DType::kF16);
  EXPECT_EQ(ComplexOf(DType::kBF16), DType::kC64);
  EXPECT_EQ(Stored(DType::kC32), DType::kC64);
}

Hash Of(const std::function<void(Hasher&)>& add) {
  Hasher h;
  add(h);
  return h.Finish();
}

TEST(HasherTest, EqualInputsAgree) {
  auto add = [](Hasher& h) {
    h.Add(7);
    h.AddBytes("abc");
  };
  EXPECT_EQ(Of(add), Of(add));
  EXPECT_EQ(ToString(Of(add)).size(), 32u);
  EXPECT_EQ(ToString(Hash{0x1, 0xAB}), "00000000000000ab0000000000000001");
}

// Both halves must tell near-equal inputs apart: a collision would run the wrong program.
TEST(HasherTest, NearEqualInputsDiffer) {
  std::vector<Hash> all;
  for (uint64_t a = 0; a < 64; ++a) {
    for (uint64_t b = 0; b < 64; ++b) {
      all.push_back(Of([&](Hasher& h) {
        h.Add(a);
        h.Add(b);
      }));
    }
  }
  for (int bit = 0; bit < 64; ++bit) all.push_back(Of([&](Hasher& h) { h.Add(1ull << bit); }));
  for (int n = 0; n < 32; ++n) {  // runs of zeros of different lengths
    all.push_back(Of([&](Hasher& h) {
      for (int i = 0; i < n; ++i) h.Add(uint64_t{0});
    }));
  }
  std::set<uint64_t> lo, hi;
  for (const Hash& h : all) {
    lo.insert(h.lo);
    hi.insert(h.hi);
  }
  const size_t distinct = 64 * 64 + 64 + 32 - 1;  // (0, 0) is the run of two zeros
  EXPECT_EQ(lo.size(), distinct);
  EXPECT_EQ(hi.size(), distinct);
}

TEST(HasherTest, BytesKnowTheirLength) {
  auto bytes = [](std::string_view a, std::string_view b) {
    return Of([&](Hasher& h) {
      h.AddBytes(a);
      h.AddBytes(b);
    });
  };
  EXPECT_FALSE(bytes("ab", "c") == bytes("a", "bc"));
  EXPECT_FALSE(bytes("", "abc") == bytes("abc", ""));
  EXPECT_FALSE(bytes(std::string_view("a\0", 2), "") == bytes("a", ""));
  EXPECT_FALSE(bytes("12345678", "") == bytes("123456789", ""));
}

TEST(HasherTest, OrderMatters) {
  Hash a = Of([](Hasher& h) { h.Add(1); });
  Hash b = Of([](Hasher& h) { h.Add(2); });
  auto pair = [](const Hash& x, const Hash& y) {
    return Of([&](Hasher& h) {
      h.Add(x);
      h.Add(y);
    });
  };
  EXPECT_FALSE(pair(a, b) == pair(b, a));
}

class FlagsTest : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("CPU_NUM_DEVICES");
    unsetenv("XLA_WAIT_TIMEOUT_S");
    unsetenv("XLA_VERIFY");
  }
};

TEST_F(FlagsTest, DefaultsAndValues) {
  unsetenv("CPU_NUM_DEVICES");
  EXPECT_FALSE(flags::IsSet(flags::Flag::kCpuNumDevices));
  EXPECT_EQ(flags::GetInt(flags::Flag::kCpuNumDevices), 1);
  setenv("CPU_NUM_DEVICES", "4", 1);
  EXPECT_TRUE(flags::IsSet(flags::Flag::kCpuNumDevices));
  EXPECT_EQ(flags::GetInt(flags::Flag::kCpuNumDevices), 4);
  setenv("CPU_NUM_DEVICES", "", 1);  // empty means unset
  EXPECT_FALSE(flags::IsSet(flags::Flag::kCpuNumDevices));
  EXPECT_EQ(flags::GetInt(flags::Flag::kCpuNumDevices), 1);
  setenv("XLA_WAIT_TIMEOUT_S", "1.5", 1);
  EXPECT_EQ(flags::GetDouble(flags::Flag::kWaitTimeoutS), 1.5);
}

TEST_F(FlagsTest, ParseErrorsNameTheVariable) {
  for (const char* bad : {"four", "4x", "1.5"}) {
    setenv("CPU_NUM_DEVICES", bad, 1);
    Status s = StatusOf([] { flags::GetInt(flags::Flag::kCpuNumDevices); });
    EXPECT_EQ(s.code, Code::kInvalidArgument) << bad;
    EXPECT_NE(s.message.find("CPU_NUM_DEVICES='" + std::string(bad)), s.message.npos) << s.message;
  }
  setenv("XLA_VERIFY", "maybe", 1);
  Status s = StatusOf([] { flags::GetBool(flags::Flag::kVerify); });
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_NE(s.message.find("XLA_VERIFY"), s.message.npos);
  for (const char* yes : {"1", "true", "on"}) {
    setenv("XLA_VERIFY", yes, 1);
    EXPECT_TRUE(flags::GetBool(flags::Flag::kVerify)) << yes;
  }
  setenv("XLA_VERIFY", "off", 1);
  EXPECT_FALSE(flags::GetBool(flags::Flag::kVerify));
}

TEST_F(FlagsTest, TheTableIsInTheOrderOfTheEnum) {
  int i = 0;
  for (const flags::Info& info : flags::All()) {
    EXPECT_EQ(static_cast<int>(info.flag), i++) << info.name;
    EXPECT_NE(std::string(info.help), "");
  }
  EXPECT_EQ(i, static_cast<int>(flags::Flag::kNum));
}

TEST(MetricsTest, CountersAppearWhenTheyCounted) {
  metrics::Counter* c = metrics::GetCounter("xla::test_op");
  EXPECT_EQ(c, metrics::GetCounter("xla::test_op"));
  EXPECT_EQ(metrics::CounterValue("xla::test_op"), std::nullopt);
  c->Add();
  c->Add(4);
  EXPECT_EQ(metrics::CounterValue("xla::test_op"), 5);
  EXPECT_EQ(metrics::CounterNames(), std::vector<std::string>{"xla::test_op"});
  metrics::ClearCounters();
  EXPECT_EQ(metrics::CounterValue("xla::test_op"), std::nullopt);
  EXPECT_TRUE(metrics::CounterNames().empty());
  EXPECT_EQ(metrics::CounterValue("xla::never_made"), std::nullopt);
}

TEST(MetricsTest, SamplesAreKeptUpToTheLimitAndTotalsForAll) {
  metrics::Metric* m = metrics::GetMetric("TestSize", metrics::Unit::kBytes);
  EXPECT_FALSE(metrics::MetricData("TestSize").has_value());
  for (int i = 0; i < 3000; ++i) metrics::AddSample(m, 2);
  auto data = metrics::MetricData("TestSize");
  ASSERT_TRUE(data.has_value());
  EXPECT_EQ(data->total_samples, 3000);
  EXPECT_EQ(data->accumulator, 6000);
  EXPECT_EQ(data->unit, metrics::Unit::kBytes);
  EXPECT_EQ(data->samples.size(), 1024u);
  EXPECT_EQ(metrics::MetricNames(), std::vector<std::string>{"TestSize"});
  metrics::ClearMetrics();
  EXPECT_FALSE(metrics::MetricData("TestSize").has_value());
}

TEST(MetricsTest, TimedMeasuresItsScope) {
  metrics::Metric* m = metrics::GetMetric("TestTime");
  {
    metrics::Timed timed(m);
    std::this_thread::sleep_for(milliseconds(20));
  }
  auto data = metrics::MetricData("TestTime");
  ASSERT_TRUE(data.has_value());
  EXPECT_EQ(data->total_samples, 1);
  EXPECT_GE(data->accumulator, 20e6);
  metrics::ClearMetrics();
}

TEST(MetricsTest, CountingFromManyThreadsLosesNothing) {
  metrics::Counter* c = metrics::GetCounter("xla::threads");
  metrics::Metric* m = metrics::GetMetric("TestThreads", metrics::Unit::kNumber);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        c->Add();
        metrics::AddSample(m, 1);
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(c->value(), 4000);
  EXPECT_EQ(metrics::MetricData("TestThreads")->total_samples, 4000);
  metrics::ClearCounters();
  metrics::ClearMetrics();
}

class WaitTest : public testing::Test {
 protected:
  void TearDown() override { SetInterruptCheck({}); }
  Status Wait(double limit_s) {
    return StatusOf([&] {
      std::unique_lock<std::mutex> lock(mutex_);
      WaitFor(
          lock, cv_, [&] { return done_; }, [] { return "the test's event"; },
          std::chrono::duration<double>(limit_s));
    });
  }
  std::mutex mutex_;
  std::condition_variable cv_;
  bool done_ = false;
};

TEST_F(WaitTest, ReturnsWhenDone) {
  std::thread setter([&] {
    std::this_thread::sleep_for(milliseconds(30));
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    cv_.notify_all();
  });
  EXPECT_TRUE(Wait(30).ok());
  setter.join();
  EXPECT_TRUE(Wait(0).ok());  // already done: no limit needed
}

TEST_F(WaitTest, TimeLimitNamesWhatItWaitedFor) {
  auto start = steady_clock::now();
  Status s = Wait(0.2);
  EXPECT_EQ(s.code, Code::kDeadlineExceeded);
  EXPECT_NE(s.message.find("the test's event"), s.message.npos) << s.message;
  auto waited = steady_clock::now() - start;
  EXPECT_GE(waited, milliseconds(200));
  EXPECT_LT(waited, milliseconds(5000));
}

TEST_F(WaitTest, InterruptEndsAWaitWithoutLimit) {
  std::atomic<int> asked{0};
  SetInterruptCheck([&] { return ++asked == 3; });
  EXPECT_EQ(Wait(0).code, Code::kCancelled);
  EXPECT_EQ(asked, 3);
}

// The check takes the GIL, and its owner may need the lock that we wait under.
TEST_F(WaitTest, TheCheckRunsWithoutTheLock) {
  SetInterruptCheck([&] {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    return false;
  });
  EXPECT_TRUE(Wait(30).ok());
}

TEST_F(WaitTest, TheLimitComesFromTheEnvironment) {
  setenv("XLA_WAIT_TIMEOUT_S", "7", 1);
  EXPECT_EQ(WaitTimeout().count(), 7);
  unsetenv("XLA_WAIT_TIMEOUT_S");
  EXPECT_EQ(WaitTimeout().count(), 300);
}

TEST(ForkTest, TheChildIsToldAndTheParentIsNot) {
  EXPECT_FALSE(InForkedChild());
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Status s = StatusOf([] { CheckNotForked(); });
    _exit(InForkedChild() && s.code == Code::kFailedPrecondition ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_FALSE(InForkedChild());
  EXPECT_TRUE(StatusOf([] { CheckNotForked(); }).ok());
}

TEST(ErrorTest, CarriesCodeAndMessage) {
  Status s = StatusOf([] { XLA_CHECK(1 > 2, kOutOfRange, "[op] n is ", 3); });
  EXPECT_EQ(s.code, Code::kOutOfRange);
  EXPECT_EQ(s.message, "[op] n is 3");
  EXPECT_EQ(StatusOf([&] { s.ThrowIfError(); }).message, s.message);
  EXPECT_TRUE(StatusOf([] { Status().ThrowIfError(); }).ok());
  s = StatusOf([] { XLA_INTERNAL_CHECK(false, "why"); });
  EXPECT_EQ(s.code, Code::kInternal);
  EXPECT_NE(s.message.find("why"), s.message.npos);
  EXPECT_STREQ(CodeName(Code::kDataLoss), "DATA_LOSS");
}

}  // namespace
}  // namespace torch_xla
