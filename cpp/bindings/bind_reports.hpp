// Failures that cannot be thrown become Python warnings.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

void bind_reports(pybind11::module_& m);

}  // namespace zerohop::bindings
