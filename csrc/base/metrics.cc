#include "base/metrics.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/flags.h"
#include "base/log.h"

namespace torch_xla::metrics {

class Metric {
 public:
  explicit Metric(Unit unit) : unit_(unit) {}

  void Add(double value) {
    double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const size_t limit = MaxSamples();  // may log the first time: not under the lock
    std::lock_guard<std::mutex> lock(mutex_);
    ++total_;
    accumulator_ += value;
    samples_.emplace_back(now, value);
    if (samples_.size() > limit) samples_.pop_front();
  }

  Data data() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return {total_, accumulator_, unit_, {samples_.begin(), samples_.end()}};
  }

  void Clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    total_ = 0;
    accumulator_ = 0;
    samples_.clear();
  }

 private:
  static size_t MaxSamples() {
    // Samples are added in destructors, where a bad variable must not throw.
    static const auto n = [] {
      try {
        return static_cast<size_t>(
            std::max<int64_t>(flags::GetInt(flags::Flag::kMetricsSamples), 1));
      } catch (const Error& e) {
        Log(Severity::kWarning, e.what());
        return size_t{1024};
      }
    }();
    return n;
  }

  mutable std::mutex mutex_;
  const Unit unit_;
  int64_t total_ = 0;
  double accumulator_ = 0;
  std::deque<std::pair<double, double>> samples_;
};

namespace {

constexpr Info kTable[] = {
    {"CompileTime", "time of one compilation by the plugin"},
    {"ExecuteTime", "time of one execution, from its launch to the readiness of its results"},
    {"LazyTracing", "time of one sync on the user's thread: collect, hash, look up, launch"},
    {"LoweringTime", "time to lower one graph to StableHLO"},
    {"TransferToDeviceTime", "time of one copy from the host, until the host memory is free again"},
    {"TransferFromDeviceTime", "time of one copy to the host, waiting included"},
    {"InboundData", "bytes of one copy from the device to the host"},
    {"OutboundData", "bytes of one copy from the host to the device"},
    {"TensorsGraphSize", "number of nodes of one synced graph"},
    {"InputOutputAliasCount", "number of donated parameters of one compiled graph"},
    {"DeviceLockWait", "time that sync waited for earlier steps (bounded run-ahead)"},
    {"CollectiveTime", "time of one collective between the replicas, on the communication thread"},
    {"CollectiveWaitTime", "time that a program waited for a collective's result"},
    {"Collectives", "collectives started"},
    {"CreateXlaTensor", "tensors made"},
    {"CachedCompile", "graphs found in the compile cache"},
    {"UncachedCompile", "graphs that had to be compiled"},
    {"MarkStep", "steps ended by sync or mark_step"},
    {"ExecuteComputation", "executions launched"},
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Counter>, std::less<>> counters;
  std::map<std::string, std::unique_ptr<Metric>, std::less<>> metrics;
};

// Never destroyed: threads may count while the process exits.
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

}  // namespace

Counter* GetCounter(std::string_view name) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  auto it = r.counters.find(name);
  if (it == r.counters.end()) {
    it = r.counters.emplace(std::string(name), std::make_unique<Counter>()).first;
  }
  return it->second.get();
}

Metric* GetMetric(std::string_view name, Unit unit) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  auto it = r.metrics.find(name);
  if (it == r.metrics.end()) {
    it = r.metrics.emplace(std::string(name), std::make_unique<Metric>(unit)).first;
  }
  return it->second.get();
}

void AddSample(Metric* metric, double value) { metric->Add(value); }

std::vector<std::string> CounterNames() {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  std::vector<std::string> names;
  for (const auto& [name, counter] : r.counters) {
    if (counter->value() != 0) names.push_back(name);
  }
  return names;
}

std::optional<int64_t> CounterValue(std::string_view name) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  auto it = r.counters.find(name);
  if (it == r.counters.end() || it->second->value() == 0) return std::nullopt;
  return it->second->value();
}

std::vector<std::string> MetricNames() {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  std::vector<std::string> names;
  for (const auto& [name, metric] : r.metrics) {
    if (metric->data().total_samples != 0) names.push_back(name);
  }
  return names;
}

std::optional<Data> MetricData(std::string_view name) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  auto it = r.metrics.find(name);
  if (it == r.metrics.end()) return std::nullopt;
  Data data = it->second->data();
  if (data.total_samples == 0) return std::nullopt;
  return data;
}

void ClearCounters() {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  for (auto& [name, counter] : r.counters) counter->Clear();
}

void ClearMetrics() {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  for (auto& [name, metric] : r.metrics) metric->Clear();
}

std::span<const Info> Documented() { return kTable; }

}  // namespace torch_xla::metrics
