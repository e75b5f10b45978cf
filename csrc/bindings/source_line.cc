#include "bindings/source_line.h"

#include <map>
#include <utility>

#include "bindings/module.h"

namespace torch_xla::bindings {
namespace {

bool IsLibrary(const std::string& file) {
  return file.find("/torch/") != std::string::npos || file.find("/torch_xla/") != std::string::npos;
}

}  // namespace

const ir::SourceLine* PythonLine() {
  if (Py_IsInitialized() == 0) return nullptr;
  py::gil_scoped_acquire gil;
  static auto* lines = new std::map<std::pair<std::string, int>, ir::SourceLine>;
  auto frame = py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* f = reinterpret_cast<PyFrameObject*>(frame.ptr());
    auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(f)));
    auto file = code.attr("co_filename").cast<std::string>();
    if (!IsLibrary(file)) {
      int line = PyFrame_GetLineNumber(f);
      auto [it, inserted] = lines->try_emplace({file, line}, ir::SourceLine{file, line});
      return &it->second;
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
  }
  return nullptr;
}

}  // namespace torch_xla::bindings
