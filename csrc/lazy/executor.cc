#include "lazy/executor.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/metrics.h"
#include "base/wait.h"
#include "ir/graph.h"
#include "lazy/compile_cache.h"
#include "lazy/effects.h"
#include "lazy/runtime.h"

namespace torch_xla::lazy {
namespace {

constexpr int kRunAhead = 2;  // steps that may be unfinished when the next one is launched

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

  struct State {
    std::mutex mutex;
    std::condition_variable freed;
    bool taken = false;
    GraphCosts costs;
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

void DropCachedViews(const std::vector<Ref<Alias>>& live) {
  for (const Ref<Alias>& a : live) a->DropCachedViews();
}

// Each (node, index) once, in order.
class Roots {
 public:
  void Add(const ir::Value& v) {
    if (seen_.insert({v.node.get(), v.index}).second) values_.push_back(v);
  }
  bool Has(const ir::Node* node, uint32_t index) const { return seen_.contains({node, index}); }
  std::vector<ir::Value> Take() { return std::move(values_); }
  bool empty() const { return values_.empty(); }

 private:
  struct KeyHash {
    size_t operator()(const std::pair<const ir::Node*, uint32_t>& k) const {
      return std::hash<const void*>()(k.first) ^ (k.second * 0x9E3779B97F4A7C15ull);
    }
  };
  std::unordered_set<std::pair<const ir::Node*, uint32_t>, KeyHash> seen_;
  std::vector<ir::Value> values_;
};

struct Launch {
  std::shared_ptr<Program> program;
  int device;
  std::vector<int64_t> lanes;
  std::vector<Ref<Data>> arguments;
  std::vector<Ref<Data>> results;
};

void Fail(const Launch& launch, const Status& error) {
  for (const Ref<Data>& r : launch.results) r->SetError(error);
}

// On the launcher's thread.
void Run(const Launch& launch) {
  static metrics::Counter* executions = metrics::GetCounter("ExecuteComputation");
  Runtime& runtime = Runtime::Get();
  auto execution = std::make_shared<Execution>();
  std::vector<pjrt::BufferPtr> held;
  std::vector<std::vector<pjrt::Buffer*>> arguments(1);
  if (!launch.lanes.empty()) {
    Shape packed{DType::kS64, {static_cast<int64_t>(launch.lanes.size())}};
    held.push_back(runtime.client().BufferFromHost(launch.lanes.data(), packed, launch.device,
                                                   pjrt::HostBuffer::kCopiedDuringCall));
    arguments[0].push_back(held.back().get());
  }
  for (const Ref<Data>& a : launch.arguments) {
    Status error;
    held.push_back(a->Get(&error));
    error.ThrowIfError();
    arguments[0].push_back(held.back().get());
  }
  pjrt::ExecuteOptions options;
  options.device = launch.device;
  executions->Add();
  pjrt::ExecuteResult result = launch.program->Get().Execute(arguments, options);
  XLA_INTERNAL_CHECK(result.outputs[0].size() == launch.results.size());
  for (size_t i = 0; i < launch.results.size(); ++i) {
    launch.results[i]->Set(std::move(result.outputs[0][i]), execution);
  }
  result.done[0].OnReady([execution, device = launch.device](const Status&) {
    execution->Finished();
    Runtime::Get().LaunchDone(device);
  });
}

void RunOrFail(const Launch& launch) {
  try {
    Run(launch);
    return;
  } catch (const Error& e) {
    Fail(launch, {e.code(), e.what()});
  } catch (const std::exception& e) {
    Fail(launch, {Code::kInternal, e.what()});
  }
  Runtime::Get().LaunchDone(launch.device);
}

// Compiles (or finds) the program of the graph, launches it and lets nodes and aliases refer to its
// results. The graph lock is held.
void Execute(GraphLock& lock, const ir::Graph& graph, const std::vector<Held>& held, int device,
             std::chrono::steady_clock::time_point start) {
  static metrics::Metric* graph_size =
      metrics::GetMetric("TensorsGraphSize", metrics::Unit::kNumber);
  static metrics::Metric* lowering_time = metrics::GetMetric("LoweringTime");
  static metrics::Metric* lock_wait = metrics::GetMetric("DeviceLockWait");
  Runtime& runtime = Runtime::Get();
  auto launch = std::make_shared<Launch>();
  launch->device = device;
  launch->program = CompileCache::Global().GetOrCompile(graph.hash,
                                                        [&] {
                                                          metrics::Timed timed(lowering_time);
                                                          return ir::Lower(graph).module;
                                                        },
                                                        {});
  std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  lock.costs() = {static_cast<int64_t>(graph.nodes.size()), took.count()};
  launch->program->Get();
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
    launch->results.push_back(MakeRef<Data>(root.shape(), device));
  }
  runtime.LaunchStarted(device);
  runtime.launcher().Enqueue([launch] { RunOrFail(*launch); });

  for (size_t i = 0; i < graph.roots.size(); ++i) {
    ir::Node* n = graph.roots[i].node.get();
    if (n->kind() == ir::OpKind::kOp && n->num_outputs() == 1) n->BecomeData(launch->results[i]);
  }
  // After all others: cached views that are computed now stay.
  for (size_t i = 0; i < graph.roots.size(); ++i) {
    const ir::Value& root = graph.roots[i];
    if (!Pending(root)) continue;
    ir::Value leaf{ir::Node::MakeData(root.shape(), launch->results[i]), 0};
    for (const Held& h : held) {
      if (h.value.node == root.node && h.value.index == root.index) {
        h.alias->ReplaceValue(h.value, leaf);
      }
    }
  }
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
  Roots roots;
  for (const Tensor* t : tensors) {
    ir::Value v = t->value();
    if (Pending(v)) roots.Add(v);
  }
  if (roots.empty()) return;  // another thread did it meanwhile
  ir::Graph graph = ir::Collect(roots.Take());
  Roots all;
  for (const ir::Value& v : graph.roots) all.Add(v);
  // A collective runs once, so everything that hangs on it runs with it: all that is pending.
  const bool whole = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                 [](const ir::Node* n) { return IsEffect(n->op()); });
  std::vector<Held> held;
  for (const Ref<Alias>& a : live) {
    ir::Value v = a->value();
    if (!Pending(v) || (!whole && v.node->mark.epoch != graph.epoch)) continue;
    all.Add(v);
    held.push_back({a, std::move(v)});
  }
  // Nodes that pending graphs outside of this one use: computed here, so that they are computed
  // once.
  for (ir::Node* n : graph.nodes) {
    if (whole) break;
    if (n->kind() != ir::OpKind::kOp || n->num_outputs() != 1 || all.Has(n, 0)) continue;
    if (n->use_count() > n->mark.uses) all.Add({Ref<ir::Node>(n), 0});
  }
  graph = ir::Collect(all.Take());
  Execute(lock, graph, held, device, start);
}

}  // namespace

void CheckDevice(int device) {
  Runtime& runtime = Runtime::Get();
  XLA_CHECK(device >= 0 && device < runtime.num_devices(), kInvalidArgument, "xla:", device,
            " does not exist: ", runtime.platform(), " has ", runtime.num_devices(), " device(s)");
}

void Sync(int device, bool wait) {
  CheckDevice(device);
  static metrics::Metric* tracing = metrics::GetMetric("LazyTracing");
  static metrics::Counter* steps = metrics::GetCounter("MarkStep");
  {
    metrics::Timed timed(tracing);
    steps->Add();
    GraphLock lock(device);
    auto start = std::chrono::steady_clock::now();
    std::vector<Ref<Alias>> live = Registry::Of(device).Live();
    DropCachedViews(live);
    Roots roots;
    std::vector<Held> held;
    for (Ref<Alias>& a : live) {
      ir::Value v = a->value();
      if (!Pending(v)) continue;
      roots.Add(v);
      held.push_back({std::move(a), std::move(v)});
    }
    if (!roots.empty()) {
      ir::Graph graph = ir::Collect(roots.Take());
      Execute(lock, graph, held, device, start);
    }
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
    payload->Set(
        runtime.client().BufferFromHost(data, shape, device, pjrt::HostBuffer::kCopiedDuringCall));
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
  for (size_t i = 0; i < buffers.size(); ++i) {
    buffers[i]->ReadyEvent().Wait("the computation of a tensor");
    data[i]->Finished();
  }
  std::vector<pjrt::Event> copies;
  try {
    for (size_t i = 0; i < buffers.size(); ++i) copies.push_back(buffers[i]->CopyToHost(dst[i]));
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
  ir::Graph graph = ir::Collect(roots.Take());
  return stablehlo ? ir::Lower(graph).module : ir::Dump(graph);
}

GraphCosts LatestCosts(int device) {
  CheckDevice(device);
  GraphLock lock(device);
  return lock.costs();
}

}  // namespace torch_xla::lazy
