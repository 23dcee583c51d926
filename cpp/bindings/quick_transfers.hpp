#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

// From now on calls that transfer and wait are fast methods. Behind explain_refusals().
void quicken_transfers(pybind11::module_& m);

}  // namespace zerohop::bindings
