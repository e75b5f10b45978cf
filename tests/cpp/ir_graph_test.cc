// Graph collection, hashing, lowering and destruction, on hand-made operators.
#include <gtest/gtest.h>

#include "base/error.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"
#include "ir/graph.h"

namespace torch_xla::ir {
namespace {

const Shape kShape{DType::kF32, {2, 3}};

template <hlo::Value (*kFn)(hlo::Value, hlo::Value)>
void LowerBinary(const Node& n, hlo::Builder&, std::span<const hlo::Value> in,
                 std::vector<hlo::Value>& out) {
  auto fit = [&](hlo::Value v) {
    return hlo::BroadcastTo(hlo::Convert(v, n.shape().dtype), n.shape().dims);
  };
  out.push_back(kFn(fit(in[0]), fit(in[1])));
}

const OpDef kSub("test::sub", LowerBinary<hlo::Sub>);
const OpDef kMul("test::mul", LowerBinary<hlo::Mul>);

Value Leaf(const Shape& shape = kShape) { return {Node::MakeData(shape, MakeRef<Payload>()), 0}; }

Value Binary(const OpDef& op, Value a, Value b, std::vector<int64_t> words = {}) {
  Value operands[] = {std::move(a), std::move(b)};
  return {Node::Make(op, operands, kShape, words), 0};
}

TEST(GraphHash, TellsHowLeavesAreConnected) {
  Value x = Leaf(), y = Leaf();
  Value same = Binary(kMul, Binary(kSub, x, y), Binary(kSub, x, y));
  Value swapped = Binary(kMul, Binary(kSub, x, y), Binary(kSub, y, x));
  EXPECT_NE(Collect({same}).hash, Collect({swapped}).hash);
}

TEST(GraphHash, IsEqualForEqualProgramsOverOtherLeaves) {
  auto make = [] {
    Value x = Leaf(), y = Leaf();
    return Binary(kMul, Binary(kSub, x, y), x);
  };
  EXPECT_EQ(Collect({make()}).hash, Collect({make()}).hash);
}

TEST(GraphHash, TellsSharedLeavesFromDistinctOnes) {
  Value x = Leaf(), y = Leaf();
  EXPECT_NE(Collect({Binary(kSub, x, x)}).hash, Collect({Binary(kSub, x, y)}).hash);
}

TEST(GraphHash, CoversAttributesAndShapesButNotScalarValues) {
  Value x = Leaf();
  auto scalar = [](double v) {
    return Value{Node::MakeScalar(DType::kF64, std::bit_cast<int64_t>(v)), 0};
  };
  EXPECT_EQ(Collect({Binary(kMul, x, scalar(2))}).hash, Collect({Binary(kMul, x, scalar(3))}).hash);
  EXPECT_NE(Collect({Binary(kMul, x, scalar(2))}).hash,
            Collect({Binary(kMul, x, {Node::MakeScalar(DType::kS64, 2), 0})}).hash);
  EXPECT_NE(Collect({Binary(kMul, x, x, {1})}).hash, Collect({Binary(kMul, x, x, {2})}).hash);
  EXPECT_NE(Collect({Binary(kMul, x, Leaf({DType::kF32, {1, 3}}))}).hash,
            Collect({Binary(kMul, x, Leaf({DType::kF32, {3}}))}).hash);
}

TEST(GraphHash, CoversTheOrderOfResults) {
  Value x = Leaf(), y = Leaf();
  Value a = Binary(kSub, x, y), b = Binary(kMul, x, y);
  EXPECT_NE(Collect({a, b}).hash, Collect({b, a}).hash);
  EXPECT_NE(Collect({a}).hash, Collect({a, a}).hash);
}

TEST(Graph, TwoScalarsOfOneValueAreTwoInputs) {
  // Merged, they would compile again as soon as one of them moves.
  Value x = Leaf();
  auto two = [] { return Value{Node::MakeScalar(DType::kS64, 2), 0}; };
  Graph g = Collect({Binary(kMul, Binary(kMul, x, two()), two())});
  EXPECT_EQ(g.scalars.size(), 2u);
  EXPECT_EQ(g.data.size(), 1u);
}

TEST(Graph, CountsUsesWithinTheGraph) {
  Value x = Leaf();
  Value a = Binary(kSub, x, x);
  Value outside = Binary(kMul, a, a);
  Graph g = Collect({a});
  EXPECT_EQ(a.node->mark.uses, 0u);
  EXPECT_EQ(x.node->mark.uses, 2u);
  EXPECT_EQ(g.nodes.size(), 2u);
}

TEST(Lowering, PacksScalarsIntoOneParameter) {
  Value x = Leaf();
  Value s{Node::MakeScalar(DType::kF64, std::bit_cast<int64_t>(0.5)), 0};
  Value c{Node::MakeScalar(DType::kC128, 1, 2), 0};
  Graph g = Collect({Binary(kMul, x, s), c});
  EXPECT_EQ(g.num_lanes(), 3u);
  Lowered lowered = Lower(g);
  EXPECT_TRUE(lowered.has_packed_scalars);
  EXPECT_NE(lowered.module.find("%arg0: tensor<3xi64>"), std::string::npos) << lowered.module;
  EXPECT_NE(lowered.module.find("%arg1: tensor<2x3xf32>"), std::string::npos) << lowered.module;
  ASSERT_EQ(lowered.results.size(), 2u);
  EXPECT_EQ(lowered.results[0], kShape);
  EXPECT_EQ(lowered.results[1], (Shape{DType::kC128, {}}));
}

// XLA has no complex<f16>.
TEST(Lowering, RoundsToHalves) {
  Shape halves{DType::kC32, {2}};
  std::vector<Value> x;
  for (DType t : {DType::kC32, DType::kC64}) {
    Value leaf = Leaf(halves.with(t));
    Value operands[] = {leaf, leaf};
    x.push_back({Node::Make(kMul, operands, leaf.shape()), 0});
  }
  auto module_of = [](const Value& v) { return Lower(Collect({v})).module; };
  EXPECT_NE(module_of(x[0]).find("reduce_precision"), std::string::npos);
  EXPECT_EQ(module_of(x[1]).find("reduce_precision"), std::string::npos);
  EXPECT_NE(Collect({x[0]}).hash, Collect({x[1]}).hash);
  EXPECT_EQ(Lower(Collect({x[0]})).results, std::vector<Shape>{halves});
}

TEST(Lowering, RefusesALoweringOfAnotherType) {
  static const OpDef wrong(
      "test::wrong",
      [](const Node&, hlo::Builder&, std::span<const hlo::Value> in, std::vector<hlo::Value>& out) {
        out.push_back(hlo::Transpose(in[0], {1, 0}));
      });
  Value x = Leaf();
  EXPECT_THROW(Lower(Collect({Value{Node::Make(wrong, {&x, 1}, kShape), 0}})), Error);
}

TEST(Node, DeepChainsNeitherOverflowNorLeak) {
  Value v = Leaf();
  for (int i = 0; i < 200'000; ++i) v = Binary(kSub, v, v);
  EXPECT_EQ(Collect({v}).nodes.size(), 200'001u);
  v = {};  // a recursive destructor would end the stack here
}

TEST(Node, BecomeDataLetsGoOfItsOperands) {
  Value x = Leaf();
  Value a = Binary(kSub, x, x);
  Value user = Binary(kMul, a, a);
  EXPECT_EQ(x.node->use_count(), 3u);
  a.node->BecomeData(MakeRef<Payload>());
  EXPECT_EQ(x.node->use_count(), 1u);
  Graph g = Collect({user});
  EXPECT_EQ(g.data.size(), 1u);
  EXPECT_EQ(g.data[0], a.node.get());
  EXPECT_EQ(a.node->hash(), Leaf().node->hash());
}

TEST(Dump, NamesOperatorsOperandsAndAttributes) {
  Value x = Leaf();
  EXPECT_EQ(Dump(Collect({Binary(kMul, x, x, {7})})),
            "%0 = tensor<2x3xf32> xla::device_data()\n"
            "%1 = tensor<2x3xf32> test::mul(%0, %0) attrs=[7]\n"
            "return %1\n");
}

}  // namespace
}  // namespace torch_xla::ir
