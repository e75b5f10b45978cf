#include "aten/custom_kernel.h"

#include "aten/tensor_impl.h"
#include "bindings/module.h"

namespace torch_xla::bindings {
namespace {

std::vector<Shape> ShapesOf(const std::vector<at::Tensor>& tensors) {
  std::vector<Shape> out;
  for (const at::Tensor& t : tensors) out.push_back(ShapeOf(t));
  return out;
}

// Of what _attribute (experimental/custom_kernel.py) has checked: Python's numbers, which have 64
// bits, numpy's of 32, and arrays of Python's module of that name.
hlo::AttrValue ToAttribute(const py::handle& v) {
  if (py::hasattr(v, "dtype")) {
    if (py::str(v.attr("dtype")).cast<std::string>() == "float32") return v.cast<float>();
    return v.cast<int32_t>();
  }
  if (py::hasattr(v, "typecode")) {
    const bool floats = v.attr("typecode").cast<std::string>() == "d";
    if (floats) return v.cast<std::vector<double>>();
    return v.cast<std::vector<int64_t>>();
  }
  if (py::isinstance<py::bool_>(v)) return v.cast<bool>();
  if (py::isinstance<py::int_>(v)) return v.cast<int64_t>();
  if (py::isinstance<py::float_>(v)) return v.cast<double>();
  return v.cast<std::string>();
}

}  // namespace

void InitCustomKernel(py::module_& m) {
  constexpr auto kOurs = py::return_value_policy::reference;  // kernels live for ever
  py::class_<CustomKernel, std::unique_ptr<CustomKernel, py::nodelete>>(m, "_XlaCustomKernel")
      .def(
          "record",
          [](const CustomKernel& kernel, const std::vector<at::Tensor>& tensors) {
            return kernel.Record(tensors);
          },
          py::arg("tensors"));
  m.def(
      "_xla_stablehlo_kernel",
      [](const std::string& op, const std::string& module, const std::vector<at::Tensor>& results) {
        std::vector<Shape> shapes = ShapesOf(results);
        py::gil_scoped_release release;
        return &CustomKernel::StableHlo(op, module, std::move(shapes));
      },
      kOurs, py::arg("op"), py::arg("module"), py::arg("results"));
  m.def(
      "_xla_ffi_kernel",
      [](const std::string& op, const std::string& target, const py::dict& attributes,
         const std::vector<at::Tensor>& results) {
        hlo::Attrs attrs;
        for (auto [name, value] : attributes) {
          attrs.emplace_back(name.cast<std::string>(), ToAttribute(value));
        }
        return &CustomKernel::Ffi(op, target, std::move(attrs), ShapesOf(results));
      },
      kOurs, py::arg("op"), py::arg("target"), py::arg("attributes"), py::arg("results"));
  m.def(
      "_xla_register_ffi_handler",
      [](const std::string& target, uintptr_t handler) {
        // An address, as ctypes says it.
        RegisterFfiHandler(target, reinterpret_cast<void*>(handler));  // NOLINT
      },
      py::arg("target"), py::arg("handler"));
}

}  // namespace torch_xla::bindings
