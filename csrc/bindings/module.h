#pragma once

#include <torch/csrc/utils/pybind.h>

namespace torch_xla::bindings {

void InitRuntime(py::module_& m);       // client, devices, plugins, log, interrupts
void InitTensor(py::module_& m);        // sync, reads, graphs, random state
void InitMetrics(py::module_& m);       // counters, metrics, flags
void InitDist(py::module_& m);          // collectives
void InitCustomKernel(py::module_& m);  // operators of users

using NoGil = py::call_guard<py::gil_scoped_release>;

}  // namespace torch_xla::bindings
