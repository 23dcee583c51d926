// The extension module zerohop._core: lists the topics, each bound in its own file.
#include <pybind11/pybind11.h>

#include "bindings/bind_reports.hpp"
#include "bindings/bind_verbs.hpp"
#include "bindings/quick_transfers.hpp"
#include "bindings/refusals.hpp"
#include "bindings/topics.hpp"

PYBIND11_MODULE(_core, m) {
  using namespace zerohop::bindings;
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
  bind_gpu(m);
  bind_device(m);
  bind_bench(m);
  bind_bench_verbs(m);
  bind_trace(m);
  bind_notebook(m);
  bind_recording(m);
  bind_logs(m);
  explain_refusals(m);
  quicken_transfers(m);
}
