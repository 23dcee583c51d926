// Guards against objects whose __init__() failed or was not called.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

// Tracebacks that show local variables call repr() of an object whose constructor has just raised,
// and __new__() alone creates one, too. pybind11 would allocate the value at that point, and hand
// out uninitialized memory. From now on any use of such an object of the types of `m` is a
// TypeError.
void refuse_half_made(pybind11::module_& m);

}  // namespace zerohop::bindings
