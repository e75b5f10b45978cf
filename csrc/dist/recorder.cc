#include "dist/recorder.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "aten/tensor_impl.h"
#include "base/error.h"
#include "base/log.h"
#include "dist/handlers.h"
#include "dist/native.h"
#include "hlo/constant.h"
#include "hlo/control.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"
#include "lazy/effects.h"
#include "lazy/executor.h"
#include "lazy/runtime.h"

namespace torch_xla::dist {
namespace {

const Shape& LinkShape() {
  static const Shape shape{DType::kS64, {2}};
  return shape;
}

void LowerStart(const ir::Node& node, hlo::Builder& b, std::span<const hlo::Value> operands,
                std::vector<hlo::Value>& outputs) {
  Shape words{DType::kS64, {static_cast<int64_t>(node.words().size())}};
  std::vector<hlo::Value> inputs{operands[0], hlo::Constant(b, words, node.words().data())};
  inputs.insert(inputs.end(), operands.begin() + 1, operands.end());
  outputs = hlo::CustomCall(b, kStartTarget, inputs, std::span(&LinkShape(), 1), {},
                            /*has_side_effect=*/true);
}

// Whether the graph is not the last that needs it: its buffer cannot be a result's.
bool LivesOn(const ir::Node& n) {
  return n.kind() == ir::OpKind::kData && n.use_count() > n.mark.uses;
}

// One call for all. A tensor that is reduced alone is reduced in place where it may be.
void LowerWhole(const ir::Node& node, hlo::Builder& b, std::span<const hlo::Value> operands,
                std::vector<hlo::Value>& outputs) {
  Shape words{DType::kS64, {static_cast<int64_t>(node.words().size())}};
  std::vector<hlo::Value> inputs{operands[0], hlo::Constant(b, words, node.words().data())};
  inputs.insert(inputs.end(), operands.begin() + 1, operands.end());
  std::vector<Shape> results;
  for (size_t i = 0; i < node.num_outputs(); ++i) results.push_back(node.shape(i));
  hlo::CustomCallOptions options;
  const Collective c = Collective::Decode(node.words());
  int operand = 2;
  for (size_t i = 0; i < c.parts.size(); ++i) {
    const Part& p = c.parts[i];
    if (p.kind == Kind::kAllReduce && p.num_tensors == 1 &&
        !LivesOn(*node.operand(static_cast<size_t>(operand) - 1).node)) {
      options.aliases.emplace_back(static_cast<int>(i) + 1, operand);
    }
    operand += static_cast<int>(p.num_tensors);
  }
  outputs =
      hlo::CustomCall(b, kWholeTarget, inputs, results, {}, /*has_side_effect=*/true, options);
}

// The plugin's own operations. What comes before a collective in the chain comes before it in the
// program, on all replicas alike.
void LowerNativeCall(const ir::Node& node, hlo::Builder& b, std::span<const hlo::Value> operands,
                     std::vector<hlo::Value>& outputs) {
  const std::vector<hlo::Value> inputs = hlo::OptimizationBarrier(operands);
  const auto world = static_cast<int64_t>(lazy::Runtime::Get().client().process_devices().size());
  std::vector<hlo::Value> results =
      LowerNative(Collective::Decode(node.words()), world, std::span(inputs).subspan(1));
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].valid()) results[i] = hlo::Full(b, node.shape(i + 1), 0);
  }
  const int64_t one[] = {1, 0};
  results.insert(results.begin(), hlo::Add(inputs[0], hlo::Constant(b, LinkShape(), one)));
  outputs = hlo::OptimizationBarrier(results);
}

// Of the first operand; the others are there to be computed with it.
void LowerSame(const ir::Node&, hlo::Builder&, std::span<const hlo::Value> operands,
               std::vector<hlo::Value>& outputs) {
  outputs.push_back(operands[0]);
}

// words: number of the part, its type
void LowerWait(const ir::Node& node, hlo::Builder& b, std::span<const hlo::Value> operands,
               std::vector<hlo::Value>& outputs) {
  hlo::Value words[] = {operands[0], operands[1],
                        hlo::Constant(b, {DType::kS64, {2}}, node.words().data())};
  outputs = hlo::CustomCall(b, kWaitTarget, words, std::span(&node.shape(), 1), {},
                            /*has_side_effect=*/true);
}

// One element of the operand.
void LowerPiece(const ir::Node&, hlo::Builder&, std::span<const hlo::Value> operands,
                std::vector<hlo::Value>& outputs) {
  const hlo::Value x = operands[0];
  auto rank = static_cast<size_t>(x.rank());
  outputs.push_back(
      hlo::Reshape(hlo::Slice(x, Dims(rank, 0), Dims(rank, 1), Dims(rank, 1)), Dims{}));
}

const ir::OpDef& StartOp() {
  static const ir::OpDef op("xla::collective_start", &LowerStart);
  return op;
}
const ir::OpDef& WholeOp() {
  static const ir::OpDef op("xla::collective", &LowerWhole);
  return op;
}
const ir::OpDef& NativeOp() {
  static const ir::OpDef op("xla::collective_native", &LowerNativeCall);
  return op;
}
const ir::OpDef& LinkOp() {
  static const ir::OpDef op("xla::collective_link", &LowerSame);
  return op;
}
const ir::OpDef& ResultOp() {
  static const ir::OpDef op("xla::collective_result", &LowerSame);
  return op;
}
const ir::OpDef& WaitOp() {
  static const ir::OpDef op("xla::collective_wait", &LowerWait);
  return op;
}
const ir::OpDef& PieceOp() {
  static const ir::OpDef op("xla::collective_done", &LowerPiece);
  return op;
}

struct Chain {
  std::mutex mutex;
  std::shared_ptr<Communicator> communicator;
  int64_t next = 0;  // number of the next collective
  lazy::Tensor link;
  std::vector<lazy::Tensor> pieces;  // of results that may not have been launched yet
};

Chain& ChainOf(int device) {
  static auto* chains = new std::array<Chain, lazy::kMaxDevices>;
  return (*chains)[static_cast<size_t>(device)];
}

bool Unlaunched(const lazy::Tensor& t) { return t.value().node->kind() == ir::OpKind::kOp; }

void DropLaunched(Chain& chain) {
  std::erase_if(chain.pieces, [](const lazy::Tensor& t) { return !Unlaunched(t); });
}

Shape ResultShape(const Part& p, const std::vector<at::Tensor>& tensors, int64_t group_size) {
  Shape shape = p.num_tensors == 1 ? ShapeOf(tensors[0]) : Shape{p.dtype, {p.count}};
  if (p.kind == Kind::kAllGather) shape.dims.insert(0, group_size);
  if (p.kind == Kind::kReduceScatter) shape.dims.erase(0);
  return shape;
}

}  // namespace

void SetCommunicator(int device, std::shared_ptr<Communicator> communicator) {
  lazy::CheckDevice(device);
  if (communicator->way() == Way::kNative) {
    lazy::SetAcrossProcesses(NativeOp());
  } else {
    RegisterHandlers();
  }
  Chain& chain = ChainOf(device);
  std::lock_guard<std::mutex> lock(chain.mutex);
  XLA_CHECK(!chain.communicator, kFailedPrecondition, "xla:", device, " has a communicator");
  const int64_t start[] = {0, device};
  chain.link = lazy::FromHost(start, LinkShape(), device);
  chain.communicator = std::move(communicator);
  // What is recorded must run once: a partial graph that holds a start takes everything.
  for (const ir::OpDef* op : {&StartOp(), &LinkOp(), &ResultOp()}) lazy::RegisterEffect(*op);
}

std::shared_ptr<Communicator> CommunicatorOf(int device) {
  Chain& chain = ChainOf(device);
  std::lock_guard<std::mutex> lock(chain.mutex);
  return chain.communicator;
}

void DropCommunicator(int device) {
  Chain& chain = ChainOf(device);
  std::shared_ptr<Communicator> dropped;
  std::lock_guard<std::mutex> lock(chain.mutex);
  chain.link = {};
  chain.pieces.clear();
  chain.next = 0;
  dropped = std::move(chain.communicator);
}

void DropCommunicators() {
  for (int d = 0; d < lazy::kMaxDevices; ++d) DropCommunicator(d);
}

void LaunchCollectives(int device) {
  std::vector<lazy::Tensor> unlaunched;
  {
    Chain& chain = ChainOf(device);
    std::lock_guard<std::mutex> lock(chain.mutex);
    DropLaunched(chain);
    unlaunched = chain.pieces;
    if (chain.link.defined() && Unlaunched(chain.link)) unlaunched.push_back(chain.link);
  }
  if (!unlaunched.empty()) lazy::Materialize(unlaunched);
}

// The link, which is alive, has all results as operands: whoever computes some of it computes all.
void RecordWhole(Chain& chain, std::vector<ir::Value>& results, std::span<const Shape> shapes,
                 std::span<ir::Value> operands, std::span<const int64_t> words) {
  const bool native = chain.communicator->way() == Way::kNative;
  const ir::OpDef& op = native ? NativeOp() : WholeOp();
  op.CountRecorded();
  std::vector<Shape> outputs{LinkShape()};
  outputs.insert(outputs.end(), shapes.begin(), shapes.end());
  Ref<ir::Node> node = ir::Node::Make(op, operands, outputs, words);
  std::vector<ir::Value> all{{node, 0}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    ir::Value part{node, static_cast<uint32_t>(i + 1)};
    results.push_back({ir::Node::Make(ResultOp(), std::span(&part, 1), shapes[i]), 0});
    all.push_back(results.back());
  }
  chain.link.Write({ir::Node::Make(LinkOp(), all, LinkShape()), 0});
}

std::shared_ptr<Pending> Start(std::vector<Operands> parts, Ranks scope, const ir::SourceLine* line,
                               const std::string& label) {
  Collective c;
  c.scope = std::move(scope);
  std::vector<ir::Value> values(1);
  std::vector<Shape> shapes;
  auto pending = std::make_shared<Pending>();
  pending->finished_ = true;  // until it is recorded
  int device = -1;
  for (Operands& o : parts) {
    Part& p = o.part;
    XLA_INTERNAL_CHECK(!o.tensors.empty());
    p.num_tensors = static_cast<int64_t>(o.tensors.size());
    for (const at::Tensor& t : o.tensors) {
      const lazy::Tensor& tensor = Unwrap(t);
      if (device < 0) device = tensor.device();
      XLA_CHECK(tensor.device() == device, kInvalidArgument, "[", KindName(p.kind),
                "] the tensors are on several devices: xla:", device, " and xla:", tensor.device());
      values.push_back(tensor.value());
      shapes.push_back(values.back().shape());
      p.dtype = shapes.back().dtype;
      p.count += shapes.back().numel();
    }
  }
  XLA_CHECK(device >= 0, kInvalidArgument, "a collective of no tensors");
  Chain& chain = ChainOf(device);
  std::lock_guard<std::mutex> lock(chain.mutex);
  XLA_CHECK(chain.communicator, kFailedPrecondition, "xla:", device, " has no communicator");
  chain.communicator->status().ThrowIfError();
  auto scope_size = static_cast<int64_t>(c.scope.size());
  if (scope_size == 0) scope_size = chain.communicator->size();
  for (const Operands& o : parts) {
    int64_t n = scope_size;
    for (const Ranks& g : o.part.groups) {
      if (std::find(g.begin(), g.end(), chain.communicator->rank()) != g.end()) {
        n = static_cast<int64_t>(g.size());
      }
    }
    pending->results_.push_back(ResultShape(o.part, o.tensors, n));
    c.parts.push_back(o.part);
  }
  std::string name = Describe(c, shapes);
  if (!label.empty()) name += " of " + label;
  Hasher hasher;
  hasher.AddBytes(name);
  c.fingerprint = static_cast<int64_t>(hasher.Finish().lo);
  const int64_t number = chain.next++;
  if (chain.communicator->way() != Way::kNative) {  // where nobody would ever ask for the name
    if (line != nullptr) name += StrCat(" at ", line->file, ":", line->line);
    chain.communicator->Name(number, std::move(name));
  }

  values[0] = chain.link.value();
  std::vector<int64_t> words = c.Encode();
  if (chain.communicator->way() != Way::kProcesses) {
    pending->device_ = device;
    pending->finished_ = false;
    RecordWhole(chain, pending->whole_, pending->results_, values, words);
    return pending;
  }
  StartOp().CountRecorded();
  pending->link_ = {ir::Node::Make(StartOp(), values, LinkShape(), words), 0};
  pending->device_ = device;
  pending->finished_ = false;
  chain.link.Write(pending->link_);
  return pending;
}

Pending::~Pending() {
  try {
    Finish();
  } catch (const std::exception& e) {
    // The communicator is gone: so is what it would hold.
    Log(Severity::kInfo, StrCat("a collective was dropped: ", e.what()));
  }
}

std::vector<at::Tensor> Pending::Finish() {
  std::vector<at::Tensor> out;
  if (std::exchange(finished_, true)) return out;
  for (ir::Value& result : whole_) out.push_back(Wrap(std::move(result), device_));
  if (!whole_.empty()) return out;
  Chain& chain = ChainOf(device_);
  std::lock_guard<std::mutex> lock(chain.mutex);
  if (!chain.link.defined()) return out;
  DropLaunched(chain);
  for (size_t i = 0; i < results_.size(); ++i) {
    // The latest link: all that was started before this wait is under way when it waits.
    ir::Value operands[] = {link_, chain.link.value()};
    const int64_t part[] = {static_cast<int64_t>(i), static_cast<int64_t>(results_[i].dtype)};
    ir::Value result{ir::Node::Make(WaitOp(), operands, results_[i], part), 0};
    if (results_[i].numel() != 0) {
      ir::Value whole = result;
      Shape scalar{results_[i].dtype, {}};
      ir::Value piece{ir::Node::Make(PieceOp(), std::span(&whole, 1), scalar), 0};
      chain.pieces.emplace_back(std::move(piece), device_);
    }
    out.push_back(Wrap(std::move(result), device_));
  }
  link_ = {};
  return out;
}

}  // namespace torch_xla::dist
