// The extension module zerohop._core: lists the topics, each bound in its own file.
#include <pybind11/pybind11.h>

#include "bindings/bind_reports.hpp"
#include "bindings/bind_verbs.hpp"
#include "bindings/half_made.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/refusals.hpp"
#include "bindings/topics.hpp"

// Without this tag CPython 3.12 and newer would refuse a subinterpreter with their own message;
// with it the second check below is reached. There is no tag for free-threaded builds: they
// re-enable the GIL, with a warning, when they import this module.
PYBIND11_MODULE(_core_of_main, m, pybind11::multiple_interpreters::per_interpreter_gil()) {
  using namespace zerohop::bindings;
  if (const char* refusal = refusal_of_interpreter()) throw pybind11::import_error(refusal);
  m.doc() = "The C++ core of zerohop.";
  bind_errors(m);
  bind_reports(m);
  bind_verbs(m);
  bind_array_view(m);
  bind_remote_memory(m);
  bind_memory(m);
  bind_grant(m);
  bind_transfer(m);
  bind_peer(m);
  bind_endpoint(m);
  bind_async_waits(m);
  bind_collective(m);
  bind_gpu_reducer(m);
  bind_exchange(m);
  bind_topology(m);
  bind_reduction(m);
  bind_gpu_group(m);
  bind_small_collectives(m);
  bind_gpu(m);
  bind_device(m);
  bind_bench(m);
  bind_bench_verbs(m);
  bind_trace(m);
  bind_notebook(m);
  bind_recording(m);
  bind_logs(m);
  refuse_half_made(m);
  explain_refusals(m);
  make_transfers_fast(m);
  make_barrier_fast(m);
  make_small_collectives_fast(m);
}

// CPython 3.13 and newer call this in the main interpreter, whichever imports, and run the function
// above in the importing one; older versions do both there.
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  const char* refusal = zerohop::bindings::refusal_of_interpreter();
  if (refusal == nullptr) return PyInit__core_of_main();
  PyErr_SetString(PyExc_ImportError, refusal);
  return nullptr;
}
