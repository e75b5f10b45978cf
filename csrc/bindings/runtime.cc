#include "lazy/runtime.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/Exceptions.h>

#include <cstring>
#include <thread>

#include "aten/device.h"
#include "aten/fallback.h"
#include "aten/host_call.h"
#include "aten/init.h"
#include "aten/mutation_adapter.h"
#include "aten/precision.h"
#include "aten/sparse.h"
#include "base/error.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/wait.h"
#include "bindings/module.h"
#include "bindings/source_line.h"
#include "dist/recorder.h"
#include "lazy/executor.h"
#include "pjrt/platform.h"

namespace torch_xla::bindings {
namespace {

py::object ToPython(const pjrt::Option& option) {
  return std::visit([](const auto& v) -> py::object { return py::cast(v); }, option);
}

py::dict ToPython(const pjrt::Options& options) {
  py::dict out;
  for (const auto& [name, value] : options) out[py::str(name)] = ToPython(value);
  return out;
}

pjrt::Option ToOption(const py::handle& v) {
  if (py::isinstance<py::bool_>(v)) return v.cast<bool>();
  if (py::isinstance<py::int_>(v)) return v.cast<int64_t>();
  if (py::isinstance<py::float_>(v)) return v.cast<double>();
  if (py::isinstance<py::str>(v)) return v.cast<std::string>();
  return v.cast<std::vector<int64_t>>();
}

// A Python callable that outlives the interpreter's wish to destroy it.
std::shared_ptr<py::object> Immortal(py::object fn) {
  return {new py::object(std::move(fn)), [](py::object*) {}};
}

const std::thread::id main_thread = std::this_thread::get_id();  // the one that imports

// Ctrl-C: Python's own handler runs here, and its exception is thrown as Python's.
bool CheckSignals() {
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
    py::gil_scoped_release yield;  // what is waited for may need the GIL
  }
  if (std::this_thread::get_id() != main_thread || Py_IsInitialized() == 0) return false;
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    python_error e;
    e.persist();
    throw e;
  }
  return false;
}

// Raised by Python before each write to os.environ reaches the process.
int WatchEnvironment(const char* event, PyObject*, void*) {
  if (std::strcmp(event, "os.putenv") == 0 || std::strcmp(event, "os.unsetenv") == 0) {
    flags::EnvironmentChanged();
  }
  return 0;
}

std::string library_path;  // of the plugin that was resolved last

pjrt::Plugin Resolve(const py::object& fn, const std::string& platform) {
  py::gil_scoped_acquire gil;
  try {
    auto [name, path, options] =
        fn(platform).cast<std::tuple<std::string, std::string, py::dict>>();
    pjrt::Plugin plugin{name, path, {}};
    for (const auto& [key, value] : options)
      plugin.options[key.cast<std::string>()] = ToOption(value);
    library_path = path;
    return plugin;
  } catch (py::error_already_set& e) {
    std::string message = py::str(e.value());
    throw Error(Code::kNotFound, message);
  }
}

lazy::Runtime& GetWithoutGil() {
  py::gil_scoped_release release;
  return lazy::Runtime::Get();
}

py::dict DeviceInfo(int i) {
  lazy::Runtime& r = GetWithoutGil();
  XLA_CHECK(i >= 0 && i < r.num_devices(), kInvalidArgument, "xla:", i, " does not exist");
  const pjrt::DeviceInfo& d = r.client().devices()[static_cast<size_t>(i)];
  py::dict out;
  out["id"] = d.id;
  out["local_id"] = d.local_id;
  out["process_index"] = d.process_index;
  out["kind"] = d.kind;
  out["debug_string"] = d.debug_string;
  out["attributes"] = ToPython(d.attributes);
  return out;
}

py::dict ClientInfo() {
  pjrt::Client& c = GetWithoutGil().client();
  py::dict out;
  out["platform_name"] = c.platform_name();
  out["platform_version"] = c.platform_version();
  out["pjrt_api_version"] = c.api_version();
  out["stablehlo_version"] = c.stablehlo_version();
  out["library_path"] = library_path;
  return out;
}

py::object MemoryInfo(int i) {
  auto stats = GetWithoutGil().client().memory_stats(i);
  if (!stats) return py::none();
  py::dict out;
  out["bytes_in_use"] = stats->bytes_in_use;
  out["peak_bytes_in_use"] = stats->peak_bytes_in_use;
  out["bytes_limit"] = stats->bytes_limit;
  return out;
}

}  // namespace

void InitRuntime(py::module_& m) {
  m.def("_xla_initialize", [] {
    SetInterruptCheck(CheckSignals);
    PySys_AddAuditHook(WatchEnvironment, nullptr);
    ir::SetLineSource(PythonLine, flags::GetBool(flags::Flag::kIrDebug));
    Initialize();
  });
  m.def(
      "_xla_shutdown",
      [] {
        lazy::Runtime::Shutdown();
        if (!InForkedChild()) dist::DropCommunicators();
      },
      NoGil());
  m.def("_xla_in_forked_child", &InForkedChild);
  m.def("_xla_runtime_created", [] { return lazy::Runtime::GetIfCreated() != nullptr; });
  m.def(
      "_xla_num_devices", [] { return lazy::Runtime::Get().num_devices(); }, NoGil());
  m.def("_xla_expected_device_count",
        [] { return static_cast<int>(c10::impl::getDeviceGuardImpl(c10::kXLA)->deviceCount()); });
  m.def(
      "_xla_platform", [] { return lazy::Runtime::Get().platform(); }, NoGil());
  m.def("_xla_device_info", &DeviceInfo, py::arg("device"));
  m.def("_xla_client_info", &ClientInfo);
  m.def("_xla_memory_info", &MemoryInfo, py::arg("device"));
  m.def(
      "_xla_live_tensors",
      [](int device) {
        lazy::CheckDevice(device);
        return lazy::Registry::Of(device).size();
      },
      py::arg("device"), NoGil());
  m.def("_xla_current_device", &CurrentDevice);
  m.def("_xla_set_current_device", &SetCurrentDevice, py::arg("device"));
  m.def(
      "_xla_set_plugin_resolver",
      [](py::object fn) {
        pjrt::SetResolver([held = Immortal(std::move(fn))](const std::string& platform) {
          return Resolve(*held, platform);
        });
      },
      py::arg("resolver"));
  m.def(
      "_xla_set_log_sink",
      [](py::object fn) {
        SetLogSink([held = Immortal(std::move(fn))](Severity s, const std::string& message) {
          if (Py_IsInitialized() == 0) return;
          py::gil_scoped_acquire gil;
          const char* level = s == Severity::kInfo      ? "INFO"
                              : s == Severity::kWarning ? "WARNING"
                                                        : "ERROR";
          try {
            (*held)(level, message);
          } catch (py::error_already_set& e) {
            e.discard_as_unraisable("torch_xla log sink");
          }
        });
      },
      py::arg("sink"));
  py::enum_<hlo::Precision>(m, "Precision")
      .value("default", hlo::Precision::kDefault)
      .value("high", hlo::Precision::kHigh)
      .value("highest", hlo::Precision::kHighest);
  m.def("_xla_set_mat_mul_precision", &SetMatMulPrecision, py::arg("precision"));
  m.def("_xla_mat_mul_precision", &MatMulPrecision);
  m.def("_xla_refused_views", &RefusedViews);
  m.def("_xla_host_calls", &HostCallNames);
  m.def("_xla_sparse_routes", &SparseRoutes);
  m.def("_xla_mutation_routes", [] {
    std::vector<std::tuple<std::string, std::string, std::string>> out;
    for (const MutationRoute& r : MutationRoutes()) out.emplace_back(r.name, r.how, r.partner);
    return out;
  });
}

}  // namespace torch_xla::bindings
