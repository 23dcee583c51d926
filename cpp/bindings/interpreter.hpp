// The interpreter that may load the module: only the main one. Threads of the core release and
// report to Python through process-wide state; in another interpreter that would corrupt both.
#pragma once

namespace zerohop::bindings {

// Why the caller may not import zerohop; null in the main interpreter. Uses no pybind11, which in a
// subinterpreter of CPython before 3.12 would deadlock on the lock that its caller holds.
const char* refusal_of_interpreter() noexcept;

}  // namespace zerohop::bindings
