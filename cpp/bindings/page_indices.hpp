// The indices of write_pages and read_pages: an array of integers on the host, any sequence or
// range of ints, or None.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

namespace zerohop::bindings {

namespace py = pybind11;

// Returns a copy, so that nobody can change what was checked; None: 0 to size - 1. Indices are not
// compared with `size`. Throws py::type_error, py::value_error (not one axis) or py::index_error
// (beyond 64 bits), which name `what`, and the exception of an array's exporter.
std::vector<std::int64_t> demand_pages(py::handle object, const char* what, std::int64_t size);

}  // namespace zerohop::bindings
