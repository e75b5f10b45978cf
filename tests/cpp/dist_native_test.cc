// Collectives as the plugin's own operations: four replicas on four devices of one client, each
// value against what it should be.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "dist/native.h"
#include "hlo/cast.h"
#include "pjrt_testing.h"

namespace torch_xla::dist {
namespace {

constexpr int64_t kWorld = 4;
using Floats = std::vector<float>;

class Native : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string library = pjrt::ConformanceLibrary();
    ASSERT_NE(library, "") << "PJRT_CONFORMANCE_LIBRARY must name a PJRT plugin";
    client_ = pjrt::MakePluginClient(library, {{"cpu_device_count", kWorld}});
  }

  // What each replica gets, as float32, when replica r gives x[r], in the type `dtype`.
  std::vector<Floats> Run(const Part& part, const std::vector<Floats>& x, Dims dims,
                          DType dtype = DType::kF32, const Ranks& scope = {}) {
    Collective c;
    c.scope = scope;
    c.parts = {part};
    hlo::Builder b("collective");
    const Shape shape{DType::kF32, dims};
    const hlo::Value in = hlo::ConvertTo(b.Parameter(shape), dtype);
    std::vector<hlo::Value> out = LowerNative(c, kWorld, std::span(&in, 1));
    const pjrt::ExecutablePtr program = client_->Compile(
        b.Finish({hlo::ConvertTo(out.at(0), DType::kF32)}), {kWorld, {0, 1, 2, 3}});
    std::vector<pjrt::BufferPtr> buffers;
    std::vector<std::vector<pjrt::Buffer*>> arguments;
    for (int r = 0; r < kWorld; ++r) {
      buffers.push_back(pjrt::ToDevice<float>(*client_, x.at(static_cast<size_t>(r)), shape, r));
      arguments.push_back({buffers.back().get()});
    }
    pjrt::ExecuteResult result = program->Execute(arguments, {});
    std::vector<Floats> got;
    for (size_t r = 0; r < kWorld; ++r) {
      result.done[r].Wait("the replicas");
      got.push_back(pjrt::ToHost<float>(*result.outputs[r].at(0)));
    }
    return got;
  }

  pjrt::ClientPtr client_;
};

Part PartOf(Kind kind, std::vector<Ranks> groups = {}, Reduce reduce = Reduce::kSum) {
  Part p;
  p.kind = kind;
  p.reduce = reduce;
  p.groups = std::move(groups);
  return p;
}

const std::vector<Floats>& Numbers() {
  static const std::vector<Floats> x{{1, 2}, {3, 5}, {7, 11}, {13, 17}};
  return x;
}

TEST_F(Native, AllReduce) {
  const std::vector<Floats>& x = Numbers();
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce), x, {2}), std::vector<Floats>(4, {24, 35}));
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce, {}, Reduce::kMul), x, {2}),
            std::vector<Floats>(4, {273, 1870}));
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce, {{0, 2}, {1, 3}}, Reduce::kMax), x, {2}),
            (std::vector<Floats>{{7, 11}, {13, 17}, {7, 11}, {13, 17}}));
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce, {{0, 1, 2}, {3}}, Reduce::kMin), x, {2}),
            (std::vector<Floats>{{1, 2}, {1, 2}, {1, 2}, {13, 17}}));
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce, {}, Reduce::kOr), x, {2}, DType::kS32),
            std::vector<Floats>(4, {15, 31}));
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce, {}, Reduce::kAnd), x, {2}, DType::kU8),
            std::vector<Floats>(4, {1, 0}));
  // Of a part of the replicas; the others' results are nobody's.
  std::vector<Floats> got = Run(PartOf(Kind::kAllReduce), x, {2}, DType::kF32, {1, 2});
  EXPECT_EQ(got[1], (Floats{10, 16}));
  EXPECT_EQ(got[2], (Floats{10, 16}));
}

TEST_F(Native, SmallFloatsAreRoundedOnce) {
  // In bfloat16, 256 + 1 is 256.
  const std::vector<Floats> x{{256}, {1}, {1}, {0}};
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce), x, {1}, DType::kBF16), std::vector<Floats>(4, {258}));
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce), x, {1}, DType::kF16), std::vector<Floats>(4, {258}));
}

TEST_F(Native, SmallIntegersWrapAround) {
  const std::vector<Floats> x{{300, 2}, {250, -3}, {-7, 5}, {1, 1}};
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce, {}, Reduce::kMul), x, {2}, DType::kS16),
            std::vector<Floats>(4, {-712, -30}));  // -525000 + 8 * 65536 = -712
  const std::vector<Floats> large{{65535, 1}, {2, 65535}, {0, 3}, {5, 0}};
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce), large, {2}, DType::kU16), std::vector<Floats>(4, {6, 3}));
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce, {}, Reduce::kMax), large, {2}, DType::kU16),
            std::vector<Floats>(4, {65535, 65535}));
  EXPECT_EQ(Run(PartOf(Kind::kAllReduce, {}, Reduce::kMin), x, {2}, DType::kS16),
            std::vector<Floats>(4, {-7, -3}));
  const std::vector<Floats> rows{{32767, 1}, {1, 2}, {5, 6}, {7, 8}};
  EXPECT_EQ(Run(PartOf(Kind::kReduceScatter, {{0, 1}, {2, 3}}), rows, {2, 1}, DType::kS16),
            (std::vector<Floats>{{-32768}, {3}, {12}, {14}}));
}

TEST_F(Native, TruthValues) {
  const std::vector<Floats> x{{1, 0, 1}, {1, 0, 0}, {1, 0, 1}, {1, 0, 1}};
  for (Reduce any : {Reduce::kSum, Reduce::kMax, Reduce::kOr}) {
    EXPECT_EQ(Run(PartOf(Kind::kAllReduce, {}, any), x, {3}, DType::kBool),
              std::vector<Floats>(4, {1, 0, 1}));
  }
  for (Reduce all : {Reduce::kMul, Reduce::kMin, Reduce::kAnd}) {
    EXPECT_EQ(Run(PartOf(Kind::kAllReduce, {}, all), x, {3}, DType::kBool),
              std::vector<Floats>(4, {1, 0, 0}));
  }
  const std::vector<Floats> rows{{1, 0}, {1, 0}, {0, 1}, {0, 0}};
  EXPECT_EQ(Run(PartOf(Kind::kReduceScatter, {{0, 1}, {2, 3}}), rows, {2, 1}, DType::kBool),
            (std::vector<Floats>{{1}, {0}, {0}, {1}}));
}

TEST_F(Native, AllGather) {
  const std::vector<Floats>& x = Numbers();
  EXPECT_EQ(Run(PartOf(Kind::kAllGather), x, {2}),
            std::vector<Floats>(4, {1, 2, 3, 5, 7, 11, 13, 17}));
  EXPECT_EQ(Run(PartOf(Kind::kAllGather, {{3, 0}, {2, 1}}), x, {2}),
            (std::vector<Floats>{{13, 17, 1, 2}, {7, 11, 3, 5}, {7, 11, 3, 5}, {13, 17, 1, 2}}));
  EXPECT_THROW(Run(PartOf(Kind::kAllGather, {{0, 1, 2}, {3}}), x, {2}), Error);
}

TEST_F(Native, ReduceScatter) {
  const std::vector<Floats> x{{1, 2, 3, 4}, {10, 20, 30, 40}, {5, 5, 5, 5}, {0, 1, 0, 1}};
  EXPECT_EQ(Run(PartOf(Kind::kReduceScatter), x, {4, 1}),
            (std::vector<Floats>{{16}, {28}, {38}, {50}}));
  EXPECT_EQ(Run(PartOf(Kind::kReduceScatter, {{0, 1}, {2, 3}}, Reduce::kMax), x, {2, 2}),
            (std::vector<Floats>{{10, 20}, {30, 40}, {5, 5}, {5, 5}}));
  EXPECT_EQ(
      Run(PartOf(Kind::kReduceScatter, {{0, 1}, {2, 3}}, Reduce::kOr), x, {2, 2}, DType::kS32),
      (std::vector<Floats>{{11, 22}, {31, 44}, {5, 5}, {5, 5}}));
}

TEST_F(Native, AllToAll) {
  const std::vector<Floats> x{{0, 1, 2, 3}, {10, 11, 12, 13}, {20, 21, 22, 23}, {30, 31, 32, 33}};
  EXPECT_EQ(
      Run(PartOf(Kind::kAllToAll), x, {4, 1}),
      (std::vector<Floats>{{0, 10, 20, 30}, {1, 11, 21, 31}, {2, 12, 22, 32}, {3, 13, 23, 33}}));
  EXPECT_EQ(
      Run(PartOf(Kind::kAllToAll, {{0, 2}, {1, 3}}), x, {2, 2}),
      (std::vector<Floats>{{0, 1, 20, 21}, {10, 11, 30, 31}, {2, 3, 22, 23}, {12, 13, 32, 33}}));
}

TEST_F(Native, Permute) {
  Part p = PartOf(Kind::kPermute);
  p.pairs = {{0, 1}, {1, 3}};
  EXPECT_EQ(Run(p, Numbers(), {2}), (std::vector<Floats>{{0, 0}, {1, 2}, {0, 0}, {3, 5}}));
  p.pairs = {};
  EXPECT_EQ(Run(p, Numbers(), {2}), std::vector<Floats>(4, {0, 0}));
}

TEST_F(Native, PermuteOfAPartOfTheReplicas) {
  Part p = PartOf(Kind::kPermute);
  p.pairs = {{1, 2}};
  std::vector<Floats> got = Run(p, Numbers(), {2}, DType::kF32, {1, 2});
  EXPECT_EQ(got[1], (Floats{0, 0}));
  EXPECT_EQ(got[2], (Floats{3, 5}));
  p.pairs = {{0, 2}, {2, 3}, {3, 0}};
  got = Run(p, Numbers(), {2}, DType::kF32, {3, 0, 2});
  EXPECT_EQ(got[0], (Floats{13, 17}));
  EXPECT_EQ(got[2], (Floats{1, 2}));
  EXPECT_EQ(got[3], (Floats{7, 11}));
  p.pairs = {{2, 1}, {1, 2}};
  for (DType t : {DType::kF32, DType::kBF16, DType::kC64}) {
    got = Run(p, {{1, 2}, {3, 4}, {-0.0F, NAN}, {5, 6}}, {2}, t, {1, 2});
    EXPECT_TRUE(got[1][0] == 0 && std::signbit(got[1][0]) && std::isnan(got[1][1]));
    EXPECT_EQ(got[2], (Floats{3, 4}));
  }
  // A plugin has all replicas wait in a permutation, and these two are not all.
  Collective c;
  c.scope = {1, 2};
  c.parts = {p};
  hlo::Builder b("collective");
  const hlo::Value in = b.Parameter({DType::kF32, {2}});
  const std::string module = b.Finish({LowerNative(c, kWorld, std::span(&in, 1)).at(0)});
  EXPECT_EQ(module.find("collective_permute"), std::string::npos);
}

TEST_F(Native, Broadcast) {
  Part p = PartOf(Kind::kBroadcast);
  p.root = 2;
  EXPECT_EQ(Run(p, Numbers(), {2}), std::vector<Floats>(4, {7, 11}));
  const std::vector<Floats> bits{{1, 2}, {3, 4}, {-0.0F, NAN}, {5, 6}};
  for (DType t : {DType::kF32, DType::kF64, DType::kBF16, DType::kC64}) {
    for (const Floats& got : Run(p, bits, {2}, t)) {
      EXPECT_TRUE(got[0] == 0 && std::signbit(got[0]));
      EXPECT_TRUE(std::isnan(got[1]));
    }
  }
  EXPECT_EQ(Run(p, {{1}, {1}, {0}, {1}}, {1}, DType::kBool), std::vector<Floats>(4, {0}));
  p.groups = {{1, 2}, {0}, {3}};
  EXPECT_EQ(Run(p, Numbers(), {2}), (std::vector<Floats>{{1, 2}, {7, 11}, {7, 11}, {13, 17}}));
}

TEST_F(Native, SeveralTensorsLieOneBehindTheOther) {
  Collective c;
  c.parts = {PartOf(Kind::kAllGather), PartOf(Kind::kAllReduce)};
  c.parts[0].num_tensors = 2;
  hlo::Builder b("collective");
  const hlo::Value in[] = {b.Parameter({DType::kF32, {2, 2}}), b.Parameter({DType::kF32, {3}}),
                           b.Parameter({DType::kF32, {0, 2}})};
  std::vector<hlo::Value> out = LowerNative(c, kWorld, in);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].shape(), (Shape{DType::kF32, {4, 7}}));
  EXPECT_FALSE(out[1].valid());  // of nothing
}

}  // namespace
}  // namespace torch_xla::dist
