// Which interpreter of the process the module may be in: the main one. What threads of the core
// give back or report reaches Python by state of the process; in another interpreter it would
// corrupt both.
#pragma once

namespace zerohop::bindings {

// Why the caller may not import zerohop; null in the main interpreter. Needs nothing of pybind11,
// which in a subinterpreter of CPython before 3.12 waits for ever for the lock that its caller has.
const char* refusal_of_interpreter() noexcept;

}  // namespace zerohop::bindings
