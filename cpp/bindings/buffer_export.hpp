// The buffer protocol (PEP 3118), producer side: for memoryview(m) and numpy.asarray(m).
//
// The view keeps the owner of the bytes, so closing the exporter does not invalidate it.
// (pybind11's own py::buffer_protocol keeps only the exporter.)
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

#include "bindings/array_export.hpp"

namespace zerohop::bindings {

// Whether the buffer protocol can name the type: not bfloat16, float8_*, complex32.
bool has_buffer_format(DType dtype) noexcept;

// Returns 0, or -1 with a Python error set. Types without a format are exported as unsigned
// integers of the same width; the consumer has to view them.
int fill_buffer(PyObject* exporter, Py_buffer* view, int flags,
                const ExportedArray& array) noexcept;

// Body of a getbufferproc: turns exceptions, such as those of half-made objects, into BufferError.
template <typename Fill>
int fill_or_raise(Py_buffer* view, Fill&& fill) noexcept {
  view->obj = nullptr;  // required by CPython after a failure
  try {
    return fill();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
    return -1;
  }
}

// For py::custom_type_setup: adds a buffer to the type, filled by `get_buffer` with fill_buffer.
void add_buffer_protocol(PyHeapTypeObject* type, getbufferproc get_buffer) noexcept;

}  // namespace zerohop::bindings
