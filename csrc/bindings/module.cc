// torch_xla._XLAC: one init function per file.
#include "bindings/module.h"

#include <torch/csrc/Exceptions.h>

#include "base/error.h"

namespace torch_xla::bindings {
namespace {

PyObject* out_of_memory = nullptr;  // torch.OutOfMemoryError, for ever

// Error codes that Python has a type of its own for; everything else is a RuntimeError.
PyObject* PythonType(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return PyExc_ValueError;
    case Code::kUnimplemented: return PyExc_NotImplementedError;
    case Code::kOutOfRange: return PyExc_IndexError;
    case Code::kResourceExhausted: return out_of_memory;
    case Code::kDeadlineExceeded: return PyExc_TimeoutError;
    default: return PyExc_RuntimeError;
  }
}

}  // namespace

PYBIND11_MODULE(_XLAC, m) {
  out_of_memory =
      py::object(py::module_::import("torch._C").attr("OutOfMemoryError")).release().ptr();
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (python_error& e) {
      e.restore();
    } catch (const Interrupted&) {
      PyErr_SetNone(PyExc_KeyboardInterrupt);
    } catch (const Error& e) {
      PyErr_SetString(PythonType(e.code()), e.what());
    } catch (const c10::OutOfMemoryError& e) {
      PyErr_SetString(out_of_memory, e.what_without_backtrace());
    } catch (const c10::IndexError& e) {
      PyErr_SetString(PyExc_IndexError, e.what_without_backtrace());
    } catch (const c10::Error& e) {
      PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
    }
  });
  InitRuntime(m);
  InitTensor(m);
  InitMetrics(m);
  InitDist(m);
  InitCustomKernel(m);
}

}  // namespace torch_xla::bindings
