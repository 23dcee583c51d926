// Error messages for calls with unsuitable arguments.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

// pybind11's own message prints every argument: whole arrays, and the secrets in addresses. From
// now on each function and method of `m` names the wrong argument in one sentence (zerohop.calls).
// A correct call costs one comparison.
void explain_refusals(pybind11::module_& m);

}  // namespace zerohop::bindings
