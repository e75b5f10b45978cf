#include "bindings/source_line.h"

#include <map>
#include <unordered_map>
#include <utility>

#include "bindings/module.h"

namespace torch_xla::bindings {
namespace {

struct File {
  bool library = false;
  std::unordered_map<int, ir::SourceLine> lines;
};

bool IsLibrary(const std::string& file) {
  return file.find("/torch/") != std::string::npos || file.find("/torch_xla/") != std::string::npos;
}

// By the name's object, which all functions of a file share; the GIL guards it. The objects are
// kept alive, so their addresses stay theirs; where a program compiles code without end, the table
// of addresses is begun anew.
File& FileOf(PyObject* name) {
  constexpr size_t kMaxNames = 10000;
  static auto* by_text = new std::map<std::string, File>;  // lines live for ever
  static auto* by_object = new std::unordered_map<PyObject*, File*>;
  auto it = by_object->find(name);
  if (it != by_object->end()) return *it->second;
  if (by_object->size() >= kMaxNames) {
    for (const auto& [object, file] : *by_object) Py_DECREF(object);
    by_object->clear();
  }
  auto text = py::reinterpret_borrow<py::object>(name).cast<std::string>();
  auto [file, is_new] = by_text->try_emplace(text);
  if (is_new) file->second.library = IsLibrary(text);
  Py_INCREF(name);
  (*by_object)[name] = &file->second;
  return file->second;
}

}  // namespace

const ir::SourceLine* PythonLine() {
  if (Py_IsInitialized() == 0) return nullptr;
  py::gil_scoped_acquire gil;
  auto frame = py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* f = reinterpret_cast<PyFrameObject*>(frame.ptr());
    auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(f)));
    PyObject* name = reinterpret_cast<PyCodeObject*>(code.ptr())->co_filename;
    File& file = FileOf(name);
    if (!file.library) {
      int line = PyFrame_GetLineNumber(f);
      ir::SourceLine& found = file.lines[line];
      if (found.line == 0) {
        found = {py::reinterpret_borrow<py::object>(name).cast<std::string>(), line};
      }
      return &found;
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
  }
  return nullptr;
}

}  // namespace torch_xla::bindings
