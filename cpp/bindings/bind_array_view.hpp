#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

namespace py = pybind11;

void bind_array_view(py::module_& m);

}  // namespace zerohop::bindings
