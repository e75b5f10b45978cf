// Communicators of one process, without devices.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dist/communicator.h"

namespace torch_xla::dist {
namespace {

using Floats = std::vector<float>;

struct Replicas {
  explicit Replicas(int64_t n) : local(std::make_shared<LocalWorld>(n)) {
    for (int64_t r = 0; r < n; ++r) {
      World w;
      w.rank = r;
      w.size = n;
      w.local = local;
      w.give_up = [local = local, r](const std::string& why) {
        local->Gone(r, "has failed: " + why);
        return std::string();
      };
      all.push_back(std::make_unique<Communicator>(std::move(w)));
      all.back()->Name(0, "the first");
    }
  }
  std::shared_ptr<LocalWorld> local;
  std::vector<std::unique_ptr<Communicator>> all;
};

// One collective of one replica; `tensors` and `out` live as long as this.
struct Call {
  explicit Call(Part p, std::vector<Floats> given, size_t results)
      : tensors(std::move(given)), out(results) {
    p.num_tensors = static_cast<int64_t>(tensors.size());
    for (const Floats& t : tensors) p.count += static_cast<int64_t>(t.size());
    collective.fingerprint = static_cast<int64_t>(p.kind) + 100 * p.count;
    collective.parts = {p};
  }
  void Start(Communicator& c) {
    Buffers b;
    PartBuffers& part = b.parts.emplace_back();
    for (const Floats& t : tensors) {
      part.tensors.emplace_back(reinterpret_cast<const char*>(t.data()), t.size() * sizeof(float));
    }
    part.out = {reinterpret_cast<char*>(out.data()), out.size() * sizeof(float)};
    b.done = [this](const Status& s) { done.set_value(s); };
    c.Run(0, collective, std::move(b));
  }
  Status Wait() { return done.get_future().get(); }

  std::vector<Floats> tensors;
  Floats out;
  Collective collective;
  std::promise<Status> done;
};

Part Of(Kind kind) {
  Part p;
  p.kind = kind;
  return p;
}

Floats Ramp(size_t n, float first) {
  Floats f(n);
  std::iota(f.begin(), f.end(), first);
  return f;
}

TEST(LocalWorld, SumsTensorsThatLieApart) {
  Replicas replicas(3);
  std::vector<std::unique_ptr<Call>> calls;
  for (size_t r = 0; r < 3; ++r) {
    const float first = 10 * static_cast<float>(r);
    calls.push_back(std::make_unique<Call>(
        Of(Kind::kAllReduce), std::vector<Floats>{Ramp(5000, first), {}, Ramp(2, first)}, 5002));
    calls.back()->Start(*replicas.all[r]);
  }
  for (auto& call : calls) {
    ASSERT_TRUE(call->Wait().ok());
    for (size_t i = 0; i < 5000; ++i) ASSERT_EQ(call->out[i], 3 * static_cast<float>(i) + 30);
    EXPECT_EQ(call->out[5000], 30);
    EXPECT_EQ(call->out[5001], 33);
  }
}

TEST(LocalWorld, ScattersWhatItReduces) {
  Replicas replicas(2);
  Call a(Of(Kind::kReduceScatter), {Ramp(6, 0)}, 3), b(Of(Kind::kReduceScatter), {Ramp(6, 1)}, 3);
  a.Start(*replicas.all[0]);
  b.Start(*replicas.all[1]);
  ASSERT_TRUE(a.Wait().ok() && b.Wait().ok());
  EXPECT_EQ(a.out, (Floats{1, 3, 5}));
  EXPECT_EQ(b.out, (Floats{7, 9, 11}));
}

TEST(LocalWorld, DifferentCollectives) {
  Replicas replicas(2);
  replicas.all[1]->Name(0, "something else");
  Call a(Of(Kind::kAllReduce), {Ramp(6, 0)}, 6), b(Of(Kind::kAllGather), {Ramp(6, 1)}, 12);
  a.Start(*replicas.all[0]);
  b.Start(*replicas.all[1]);
  for (Call* c : {&a, &b}) {
    const Status s = c->Wait();
    EXPECT_EQ(s.code, Code::kFailedPrecondition);
    EXPECT_NE(s.message.find("rank 0: collective 0, the first\n  rank 1: collective 0, something"),
              std::string::npos)
        << s.message;
  }
}

TEST(LocalWorld, WhoDoesNotCome) {
  setenv("XLA_WAIT_TIMEOUT_S", "0.5", 1);
  Replicas replicas(2);
  Call a(Of(Kind::kAllReduce), {Ramp(6, 0)}, 6), b(Of(Kind::kAllReduce), {Ramp(6, 0)}, 6);
  a.Start(*replicas.all[0]);
  const Status late = a.Wait();
  EXPECT_EQ(late.code, Code::kDeadlineExceeded);
  EXPECT_NE(late.message.find("no sign of rank 1 (collective 0, the first)"), std::string::npos)
      << late.message;
  b.Start(*replicas.all[1]);  // finds that rank 0 has given up
  const Status gone = b.Wait();
  EXPECT_NE(gone.message.find("rank 0 has failed: "), std::string::npos) << gone.message;
  unsetenv("XLA_WAIT_TIMEOUT_S");
}

TEST(LocalWorld, WhoIsGone) {
  Replicas replicas(2);
  Call a(Of(Kind::kAllReduce), {Ramp(6, 0)}, 6);
  a.Start(*replicas.all[0]);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  replicas.local->Gone(1, "has ended");
  EXPECT_NE(a.Wait().message.find("rank 1 has ended"), std::string::npos);
  EXPECT_THROW(Call(Of(Kind::kAllReduce), {Ramp(6, 0)}, 6).Start(*replicas.all[0]), Error);
}

}  // namespace
}  // namespace torch_xla::dist
