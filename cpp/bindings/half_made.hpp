// What is done with an object that was never made: its __init__() failed, or was not called.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

// Tracebacks that show local variables call repr() of one whose constructor has just raised, and
// __new__() alone gives one. pybind11 would allocate the value there and then, and hand out memory
// that nobody has initialised. From now on each use of one of the types of `m` is a TypeError.
void refuse_half_made(pybind11::module_& m);

}  // namespace zerohop::bindings
