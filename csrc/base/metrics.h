// Counters and metrics (timed or sized samples) under their public names.
//
// Names starting with "aten::" count operators that fell back to the host, "xla::" operators that
// were recorded; the fixed names are in the table of metrics.cc with their meaning.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torch_xla::metrics {

class Counter {
 public:
  void Add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }
  void Clear() { value_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

enum class Unit { kNanoseconds, kBytes, kNumber };

struct Data {
  int64_t total_samples = 0;
  double accumulator = 0;
  Unit unit = Unit::kNumber;
  std::vector<std::pair<double, double>> samples;  // (seconds since the epoch, value), oldest first
};

class Metric;

// Both live for ever; look one up once and keep the pointer. Thread-safe.
Counter* GetCounter(std::string_view name);
Metric* GetMetric(std::string_view name, Unit unit = Unit::kNanoseconds);
void AddSample(Metric* metric, double value);

// Adds the nanoseconds that it lived to a metric.
class Timed {
 public:
  explicit Timed(Metric* metric) : metric_(metric), start_(std::chrono::steady_clock::now()) {}
  ~Timed() {
    AddSample(metric_,
              std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start_)
                  .count());
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Metric* metric_;
  std::chrono::steady_clock::time_point start_;
};

// Only those that counted something since the start or the last Clear.
std::vector<std::string> CounterNames();
std::optional<int64_t> CounterValue(std::string_view name);
std::vector<std::string> MetricNames();
std::optional<Data> MetricData(std::string_view name);
void ClearCounters();
void ClearMetrics();

struct Info {
  const char* name;
  const char* help;
};
std::span<const Info> Documented();  // the fixed names, for the docs

}  // namespace torch_xla::metrics
