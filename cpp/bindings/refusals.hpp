// What is said of a call whose arguments do not fit.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

// pybind11's own words show every argument: whole arrays, and the secrets in addresses. From now on
// each function and method that `m` has says in a sentence which argument it is (zerohop.calls). A
// call that fits pays for one comparison.
void explain_refusals(pybind11::module_& m);

}  // namespace zerohop::bindings
