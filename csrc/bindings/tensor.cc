#include "aten/generator.h"
#include "aten/host_copy.h"
#include "aten/tensor_impl.h"
#include "base/error.h"
#include "bindings/module.h"
#include "lazy/compile_cache.h"
#include "lazy/executor.h"

namespace torch_xla::bindings {
namespace {

std::vector<lazy::Tensor> UnwrapAll(const std::vector<at::Tensor>& tensors) {
  std::vector<lazy::Tensor> out;
  for (const at::Tensor& t : tensors) out.push_back(Unwrap(t));
  return out;
}

XLAGenerator* GeneratorOf(int device) { return DefaultGenerator(device).get<XLAGenerator>(); }

}  // namespace

void InitTensor(py::module_& m) {
  m.def(
      "_xla_get_tensor_id", [](const at::Tensor& t) { return Unwrap(t).alias_id(); },
      py::arg("tensor"));
  m.def(
      "_xla_root",
      [](const at::Tensor& t) {
        lazy::Tensor root = Unwrap(t).Root();
        Shape shape = root.value().shape();
        return Wrap(std::move(root), shape);
      },
      py::arg("tensor"));
  m.def(
      "_xla_is_root", [](const at::Tensor& t) { return !Unwrap(t).is_view(); }, py::arg("tensor"));
  m.def(
      "_xla_rebase",
      [](const at::Tensor& t, const at::Tensor& root) {
        return Wrap(Unwrap(t).Rebase(Unwrap(root)), ShapeOf(t));
      },
      py::arg("tensor"), py::arg("root"));
  m.def(
      "_xla_sync",
      [](int device, bool wait) {
        const ir::SourceLine* line = ir::CurrentLine();
        py::gil_scoped_release release;
        lazy::Sync(device, wait, line);
      },
      py::arg("device"), py::arg("wait") = false);
  m.def("_xla_wait_device_ops", &lazy::WaitDeviceOps, py::arg("device"), NoGil());
  m.def(
      "_xla_materialize",
      [](const std::vector<at::Tensor>& tensors) { lazy::Materialize(UnwrapAll(tensors)); },
      py::arg("tensors"), NoGil());
  m.def(
      "_xla_to_cpu", [](const std::vector<at::Tensor>& tensors) { return ToCpu(tensors); },
      py::arg("tensors"), NoGil());
  m.def(
      "_xla_dump_graph",
      [](int device, const std::vector<at::Tensor>& tensors, bool stablehlo) {
        return lazy::DumpGraph(device, UnwrapAll(tensors), stablehlo);
      },
      py::arg("device"), py::arg("tensors"), py::arg("stablehlo"), NoGil());
  m.def(
      "_xla_latest_costs",
      [](int device) {
        lazy::GraphCosts c = lazy::LatestCosts(device);
        return std::make_pair(c.nodes, c.collect_and_look_up);
      },
      py::arg("device"), NoGil());
  m.def("_xla_cached_programs", [] { return lazy::CompileCache::Global().size(); });
  m.def(
      "_xla_get_rng_state",
      [](int device) {
        XLAGenerator* g = GeneratorOf(device);
        return std::make_pair(g->current_seed(), g->get_offset());
      },
      py::arg("device"));
  m.def(
      "_xla_set_rng_state",
      [](int device, uint64_t seed, uint64_t offset) {
        XLAGenerator* g = GeneratorOf(device);
        g->set_current_seed(seed);
        g->set_offset(offset);
      },
      py::arg("device"), py::arg("seed"), py::arg("offset"));
}

}  // namespace torch_xla::bindings
