#include "lazy/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/metrics.h"
#include "base/wait.h"
#include "ir/donation.h"
#include "ir/graph.h"
#include "lazy/compile_cache.h"
#include "lazy/effects.h"
#include "lazy/launch.h"
#include "lazy/runtime.h"
#include "lazy/threads.h"

namespace torch_xla::lazy {
namespace {

constexpr int kRunAhead = 2;  // steps that may be unfinished when the next one is launched

// Of cached views: those of others stay, since they would record them again in a second node.
bool MineOrNobodys(ir::RecorderId id) {
  return id == ir::kNobody || id == ir::ThisRecorder() || !ir::RecorderOf(id).alive;
}

// Held while a graph is collected, compiled and launched: node marks and the order of launches
// depend on it. A mutex that can be interrupted, since compiling may take minutes.
class GraphLock {
 public:
  explicit GraphLock(int device) : state_(Of(device)) {
    std::unique_lock<std::mutex> lock(state_.mutex);
    WaitFor(
        lock, state_.freed, [this] { return !state_.taken; },
        [] { return std::string("another thread's compilation"); }, std::chrono::seconds(0));
    state_.taken = true;
  }
  ~GraphLock() {
    std::lock_guard<std::mutex> lock(state_.mutex);
    state_.taken = false;
    state_.freed.notify_one();
  }
  GraphLock(const GraphLock&) = delete;
  GraphLock& operator=(const GraphLock&) = delete;

  GraphCosts& costs() { return state_.costs; }
  Threads& threads() { return state_.threads; }

  struct State {
    std::mutex mutex;
    std::condition_variable freed;
    bool taken = false;
    GraphCosts costs;
    Threads threads;
  };
  static State& Of(int device) {
    static auto* states = new State[kMaxDevices];
    return states[device];
  }

 private:
  State& state_;
};

bool Pending(const ir::Value& v) { return v.node->kind() != ir::OpKind::kData; }

// What a live alias held when the graph was collected.
struct Held {
  Ref<Alias> alias;
  ir::Value value;
};

// Each (node, index) once, in order.
class Roots {
 public:
  void Add(const ir::Value& v) {
    if (positions_.try_emplace({v.node.get(), v.index}, values_.size()).second)
      values_.push_back(v);
  }
  bool Has(const ir::Node* node, uint32_t index) const {
    return positions_.contains({node, index});
  }
  // Of a value that was added.
  size_t Position(const ir::Value& v) const { return positions_.at({v.node.get(), v.index}); }
  const std::vector<ir::Value>& values() const { return values_; }
  bool empty() const { return values_.empty(); }

 private:
  struct KeyHash {
    size_t operator()(const std::pair<const ir::Node*, uint32_t>& k) const {
      return std::hash<const void*>()(k.first) ^ (k.second * 0x9E3779B97F4A7C15ull);
    }
  };
  std::unordered_map<std::pair<const ir::Node*, uint32_t>, size_t, KeyHash> positions_;
  std::vector<ir::Value> values_;
};

// What is computed and for whom: the roots first, then what is alive on the way.
struct Step {
  Roots roots;
  std::vector<Held> held;
};

double Bytes(const Shape& shape) {
  auto bytes = static_cast<double>(ByteSize(shape.dtype));
  for (int64_t d : shape.dims) bytes *= static_cast<double>(d);
  return bytes;
}

// What cannot fit is refused before anything is given away: nothing is lost, and with the tensors
// that are too large gone, the next sync succeeds. A plugin might abort instead.
void CheckMemory(Runtime& runtime, Program& program, const ir::Graph& graph, int device) {
  double bytes = 0, largest = 0;
  const ir::Value* of = nullptr;
  for (const ir::Value& root : graph.roots) {
    const double n = Bytes(root.shape());
    bytes += n;
    if (n <= largest) continue;
    largest = n;
    of = &root;
  }
  if (program.memory()) {
    bytes += static_cast<double>(program.memory()->temp);
    bytes -= static_cast<double>(program.memory()->alias);
  }
  if (bytes <= runtime.MemoryLimit(device)) return;
  std::string what = program.operators();
  if (of != nullptr) {
    what += StrCat("; the largest result is ", of->node->op().name(), "'s ", ToString(of->shape()));
    if (const ir::SourceLine* line = of->node->line()) {
      what += StrCat(", recorded at ", line->file, ":", line->line);
    }
  }
  ThrowOutOfMemory(bytes, what);
}

bool HasEffect(const ir::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const ir::Node* n) { return IsEffect(n->op()); });
}

// Effects become data with the launch, so that none runs again where a later graph refers to it;
// none can to what is known in this graph alone. Whether there were any that were no roots yet.
bool AddEffects(Step& step, const ir::Graph& graph) {
  const size_t before = step.roots.values().size();
  for (ir::Node* n : graph.nodes) {
    if (IsEffect(n->op()) && n->use_count() > n->mark.uses) step.roots.Add({Ref<ir::Node>(n), 0});
  }
  return step.roots.values().size() != before;
}

std::shared_ptr<Program> FindProgram(const ir::Graph& graph, const Step& step, int device) {
  static metrics::Metric* lowering_time = metrics::GetMetric("LoweringTime");
  auto source = [&] {
    metrics::Timed timed(lowering_time);
    std::vector<bool> updates(graph.roots.size());
    for (const Held& h : step.held) {
      if (h.alias->written()) updates[step.roots.Position(h.value)] = true;
    }
    Source s;
    s.module = ir::Lower(graph, ir::PlanDonation(graph, updates)).module;
    s.flow = ir::Flow(graph);
    s.operators = ir::Summary(graph);
    s.across_processes = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                     [](const ir::Node* n) { return IsAcrossProcesses(n->op()); });
    for (size_t i = 0; i < graph.roots.size(); ++i) {
      if (IsEffect(graph.roots[i].node->op())) s.effects.push_back(i);
    }
    return s;
  };
  return CompileCache::Global().GetOrCompile(graph.hash, source, device);
}

// Compiles (or finds) the step's program, lets nodes and aliases refer to its results and launches
// it. The graph lock is held.
void Execute(GraphLock& lock, Step step, int device, const ir::SourceLine* line,
             std::chrono::steady_clock::time_point start) {
  static metrics::Metric* graph_size =
      metrics::GetMetric("TensorsGraphSize", metrics::Unit::kNumber);
  static metrics::Metric* lock_wait = metrics::GetMetric("DeviceLockWait");
  Runtime& runtime = Runtime::Get();
  ir::Graph graph = ir::Collect(step.roots.values());
  if (AddEffects(step, graph)) graph = ir::Collect(step.roots.values());
  auto launch = std::make_shared<Launch>(runtime, device);
  launch->line = line;
  launch->program = FindProgram(graph, step, device);
  std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  lock.costs() = {static_cast<int64_t>(graph.nodes.size()), took.count()};
  launch->program->Get();
  CheckMemory(runtime, *launch->program, graph, device);
  {
    metrics::Timed timed(lock_wait);
    runtime.WaitForLaunches(device, kRunAhead);
  }
  metrics::AddSample(graph_size, static_cast<double>(graph.nodes.size()));

  // From here on nothing may throw: the graph is given away.
  for (const ir::Node* s : graph.scalars) {
    launch->lanes.insert(launch->lanes.end(), s->words().begin(), s->words().end());
  }
  for (const ir::Node* d : graph.data) {
    launch->arguments.emplace_back(static_cast<Data*>(d->payload()));
  }
  for (const ir::Value& root : graph.roots) {
    launch->results.push_back(MakeRef<Data>(root.shape(), device, *root.node));
  }
  for (size_t i = 0; i < graph.roots.size(); ++i) {
    ir::Node* n = graph.roots[i].node.get();
    if (n->kind() == ir::OpKind::kOp && n->num_outputs() == 1) n->BecomeData(launch->results[i]);
  }
  // After all others: cached views that are computed now stay.
  std::vector<ir::Value> leaves(graph.roots.size());
  for (const Held& h : step.held) {
    if (!Pending(h.value)) continue;
    size_t i = step.roots.Position(h.value);
    if (!leaves[i]) leaves[i] = {ir::Node::MakeData(h.value.shape(), launch->results[i]), 0};
    h.alias->ReplaceValue(h.value, leaves[i]);
  }
  // Arguments that only this graph referred to are the launch's alone when it begins.
  leaves.clear();
  graph = {};
  step = {};
  runtime.LaunchStarted(device);
  runtime.launcher(device).Enqueue([launch] { RunOrFail(*launch); });
}

void DropCachedViews(const std::vector<Ref<Alias>>& live) {
  for (const Ref<Alias>& a : live) a->DropCachedViews(MineOrNobodys);
}

void AddLive(Step& step, const Ref<Alias>& alias, ir::Value value) {
  step.roots.Add(value);
  step.held.push_back({alias, std::move(value)});
}

// What another thread has just made and not written to yet: to copy to the device is to make a
// tensor and to write it. A loader's thread does that all the time, and a step that took such a
// tensor would be another program. Nothing is lost: whoever needs the constant computes it.
bool IsBlankOfAnother(const ir::Node& n) {
  return n.num_operands() == 0 && !MineOrNobodys(n.recorder());
}

// Adds what has to run with the roots: what is computed on the way, not to be computed again, and,
// when there is an effect among that, what hangs on one, since an effect runs once. What other
// threads record apart from effects is left out: when they are halfway is a matter of chance.
// The graph of the roots and of what goes with them.
ir::Graph AddWhatGoesWith(Step& step, std::vector<Held> others) {
  auto take_if = [&](const std::function<bool(const ir::Value&)>& wanted) {
    std::erase_if(others, [&](Held& h) {
      if (!wanted(h.value)) return false;
      AddLive(step, h.alias, std::move(h.value));
      return true;
    });
  };
  ir::Graph graph = ir::Collect(step.roots.values());
  if (HasEffect(graph)) {
    take_if([](const ir::Value& v) {
      return MineOrNobodys(v.node->recorder()) || HasEffect(ir::Collect({v}));
    });
    graph = ir::Collect(step.roots.values());
  }
  take_if([&](const ir::Value& v) { return v.node->mark.epoch == graph.epoch; });
  return graph;
}

// What a sync of this thread computes.
Step CollectStep(Threads& threads, int device) {
  std::vector<Ref<Alias>> live = Registry::Of(device).Live();
  DropCachedViews(live);
  threads.Begin();
  Step step;
  std::vector<Held> others;
  for (const Ref<Alias>& a : live) {
    ir::Value v = a->value();
    if (!Pending(v)) continue;
    if (!IsBlankOfAnother(*v.node) && threads.Take(v.node->recorder())) {
      AddLive(step, a, std::move(v));
    } else {
      others.push_back({a, std::move(v)});
    }
  }
  if (!others.empty() && !step.roots.empty()) AddWhatGoesWith(step, std::move(others));
  return step;
}

void MaterializeOn(int device, const std::vector<const Tensor*>& tensors) {
  auto pending = [&] {
    for (const Tensor* t : tensors) {
      if (Pending(t->value())) return true;
    }
    return false;
  };
  if (!pending()) return;
  GraphLock lock(device);
  auto start = std::chrono::steady_clock::now();
  std::vector<Ref<Alias>> live = Registry::Of(device).Live();
  DropCachedViews(live);
  Step step;
  for (const Tensor* t : tensors) {
    ir::Value v = t->value();
    if (Pending(v)) step.roots.Add(v);
  }
  if (step.roots.empty()) return;  // another thread did it meanwhile
  std::vector<Held> others;
  for (const Ref<Alias>& a : live) {
    if (ir::Value v = a->value(); Pending(v)) others.push_back({a, std::move(v)});
  }
  ir::Graph graph = AddWhatGoesWith(step, std::move(others));
  const bool whole = HasEffect(graph);
  // Nodes that pending graphs outside of this one use: computed here, so that they are computed
  // once; but for views that are larger than memory, of which only a part is needed.
  const double limit = Runtime::Get().MemoryLimit(device);
  for (ir::Node* n : graph.nodes) {
    if (whole) break;
    if (n->kind() != ir::OpKind::kOp || n->num_outputs() != 1 || step.roots.Has(n, 0)) continue;
    if (n->use_count() > n->mark.uses && Bytes(n->shape()) < limit)
      step.roots.Add({Ref<ir::Node>(n), 0});
  }
  graph = {};
  live.clear();
  Execute(lock, std::move(step), device, /*line=*/nullptr, start);
}

}  // namespace

void CheckDevice(int device) {
  Runtime& runtime = Runtime::Get();
  XLA_CHECK(device >= 0 && device < runtime.num_devices(), kInvalidArgument, "xla:", device,
            " does not exist: ", runtime.platform(), " has ", runtime.num_devices(), " device(s)");
}

void Sync(int device, bool wait, const ir::SourceLine* line) {
  CheckDevice(device);
  static metrics::Metric* tracing = metrics::GetMetric("LazyTracing");
  static metrics::Counter* steps = metrics::GetCounter("MarkStep");
  {
    metrics::Timed timed(tracing);
    steps->Add();
    GraphLock lock(device);
    auto start = std::chrono::steady_clock::now();
    Step step = CollectStep(lock.threads(), device);
    if (!step.roots.empty()) Execute(lock, std::move(step), device, line, start);
  }
  if (wait) WaitDeviceOps(device);
}

void WaitDeviceOps(int device) {
  CheckDevice(device);
  Runtime::Get().WaitForLaunches(device, 0);
}

void Materialize(std::span<const Tensor> tensors) {
  Runtime::Get();
  std::vector<std::vector<const Tensor*>> by_device(kMaxDevices);
  for (const Tensor& t : tensors) by_device[static_cast<size_t>(t.device())].push_back(&t);
  for (int d = 0; d < kMaxDevices; ++d) {
    const auto& group = by_device[static_cast<size_t>(d)];
    if (!group.empty()) MaterializeOn(d, group);
  }
}

Tensor FromHost(const void* data, const Shape& shape, int device) {
  static metrics::Metric* time = metrics::GetMetric("TransferToDeviceTime");
  static metrics::Metric* bytes = metrics::GetMetric("OutboundData", metrics::Unit::kBytes);
  Runtime& runtime = Runtime::Get();
  CheckDevice(device);
  auto payload = MakeRef<Data>(shape, device);
  {
    metrics::Timed timed(time);
    try {
      payload->Set(runtime.client().BufferFromHost(data, shape.with(Stored(shape.dtype)), device,
                                                   pjrt::HostBuffer::kCopiedDuringCall));
    } catch (const Error& e) {
      const bool full = e.code() == Code::kResourceExhausted ||
                        std::string_view(e.what()).find("ut of memory") != std::string_view::npos;
      if (!full) throw;
      ThrowOutOfMemory(Bytes(shape), "a copy to the device of " + ToString(shape));
    }
  }
  metrics::AddSample(bytes, static_cast<double>(shape.bytes()));
  return Tensor({ir::Node::MakeData(shape, payload), 0}, device);
}

void ToHost(std::span<const Tensor> tensors, std::span<void* const> dst,
            std::shared_ptr<void> keep) {
  static metrics::Metric* time = metrics::GetMetric("TransferFromDeviceTime");
  static metrics::Metric* bytes = metrics::GetMetric("InboundData", metrics::Unit::kBytes);
  std::vector<Ref<Data>> data;
  while (data.size() < tensors.size()) {
    Materialize(tensors);
    data.clear();
    for (const Tensor& t : tensors) {
      ir::Value v = t.value();
      if (Pending(v)) break;  // another thread wrote it meanwhile: its new value then
      data.emplace_back(static_cast<Data*>(v.node->payload()));
    }
  }
  metrics::Timed timed(time);
  std::vector<pjrt::BufferPtr> buffers;
  for (const Ref<Data>& d : data) {
    buffers.push_back(d->Wait());
    metrics::AddSample(bytes, static_cast<double>(d->shape().bytes()));
  }
  for (size_t i = 0; i < buffers.size(); ++i) data[i]->WaitReady(*buffers[i]);
  std::vector<pjrt::Event> copies;
  try {
    for (size_t i = 0; i < buffers.size(); ++i) {
      // Where the memory is the host's, a copy that takes less than waking a thread is made here.
      // `data` keeps the buffer from being donated.
      constexpr size_t kSmall = size_t{1} << 16;
      const size_t n = data[i]->shape().bytes();
      const void* memory = n <= kSmall ? buffers[i]->HostPointer() : nullptr;
      if (memory != nullptr) {
        std::memcpy(dst[i], memory, n);
      } else {
        copies.push_back(buffers[i]->CopyToHost(dst[i]));
      }
    }
    for (const pjrt::Event& copy : copies) copy.Wait("a copy from the device");
  } catch (...) {
    for (const pjrt::Event& copy : copies) copy.OnReady([keep](const Status&) {});
    throw;
  }
}

std::string DumpGraph(int device, std::span<const Tensor> tensors, bool stablehlo) {
  CheckDevice(device);
  for (const Tensor& t : tensors) {
    XLA_CHECK(t.device() == device, kInvalidArgument, "the tensors are on several devices");
  }
  GraphLock lock(device);
  Roots roots;
  if (tensors.empty()) {
    for (const Ref<Alias>& a : Registry::Of(device).Live()) {
      ir::Value v = a->value();
      if (Pending(v)) roots.Add(v);
    }
  }
  for (const Tensor& t : tensors) roots.Add(t.value());
  ir::Graph graph = ir::Collect(roots.values());
  return stablehlo ? ir::Lower(graph).module : ir::Dump(graph);
}

GraphCosts LatestCosts(int device) {
  CheckDevice(device);
  GraphLock lock(device);
  return lock.costs();
}

}  // namespace torch_xla::lazy
