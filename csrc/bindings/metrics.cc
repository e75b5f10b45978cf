#include "base/metrics.h"

#include "base/flags.h"
#include "bindings/module.h"

namespace torch_xla::bindings {

void InitMetrics(py::module_& m) {
  m.def("_xla_counter_names", &metrics::CounterNames);
  m.def("_xla_counter_value", &metrics::CounterValue, py::arg("name"));
  m.def("_xla_metric_names", &metrics::MetricNames);
  m.def(
      "_xla_metric_data",
      [](const std::string& name) -> py::object {
        auto data = metrics::MetricData(name);
        if (!data) return py::none();
        const char* unit = data->unit == metrics::Unit::kNanoseconds ? "ns"
                           : data->unit == metrics::Unit::kBytes     ? "bytes"
                                                                     : "number";
        return py::make_tuple(data->total_samples, data->accumulator, data->samples, unit);
      },
      py::arg("name"));
  m.def("_xla_clear_counters", &metrics::ClearCounters);
  m.def("_xla_clear_metrics", &metrics::ClearMetrics);
  m.def("_xla_documented_metrics", [] {
    std::vector<std::pair<std::string, std::string>> out;
    for (const metrics::Info& i : metrics::Documented()) out.emplace_back(i.name, i.help);
    return out;
  });
  m.def("_xla_flags", [] {
    std::vector<std::tuple<std::string, std::string, std::string>> out;
    for (const flags::Info& i : flags::All()) out.emplace_back(i.name, i.default_value, i.help);
    return out;
  });
}

}  // namespace torch_xla::bindings
