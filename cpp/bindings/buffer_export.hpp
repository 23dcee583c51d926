// The buffer protocol (PEP 3118), producer side: for memoryview(m) and numpy.asarray(m).
//
// Use it from py::custom_type_setup: as_buffer.bf_getbuffer calls fill_buffer, bf_releasebuffer is
// release_buffer. The view keeps the owner, so closing the exporter does not pull the bytes away.
#pragma once

#include <pybind11/pybind11.h>

#include "bindings/array_export.hpp"

namespace zerohop::bindings {

// 0, or -1 with a Python error set. Types that the struct module cannot name (bfloat16, float8_*,
// complex32) leave as unsigned integers of the same width, to be viewed by the consumer.
int fill_buffer(PyObject* exporter, Py_buffer* view, int flags,
                const ExportedArray& array) noexcept;

void release_buffer(PyObject* exporter, Py_buffer* view) noexcept;

}  // namespace zerohop::bindings
