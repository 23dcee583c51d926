// One function per topic; module.cpp calls each.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

void bind_errors(pybind11::module_& m);
void bind_array_view(pybind11::module_& m);
void bind_memory(pybind11::module_& m);
void bind_grant(pybind11::module_& m);
void bind_remote_memory(pybind11::module_& m);
void bind_transfer(pybind11::module_& m);
void bind_peer(pybind11::module_& m);
void bind_endpoint(pybind11::module_& m);
void bind_async_waits(pybind11::module_& m);
void bind_collective(pybind11::module_& m);  // after Endpoint
void bind_gpu_reducer(pybind11::module_& m);
void bind_exchange(pybind11::module_& m);  // after GpuReducer
void bind_topology(pybind11::module_& m);  // after Lines
void bind_reduction(pybind11::module_& m);
void bind_gpu_group(pybind11::module_& m);
void bind_small_collectives(pybind11::module_& m);
void bind_gpu(pybind11::module_& m);
void bind_bench(pybind11::module_& m);
void bind_bench_verbs(pybind11::module_& m);  // after the objects of zh.verbs
void bind_device(pybind11::module_& m);
void bind_trace(pybind11::module_& m);
void bind_notebook(pybind11::module_& m);  // after the classes
void bind_recording(pybind11::module_& m);
void bind_logs(pybind11::module_& m);

// After explain_refusals():
void make_transfers_fast(pybind11::module_& m);
void make_barrier_fast(pybind11::module_& m);
void make_small_collectives_fast(pybind11::module_& m);

}  // namespace zerohop::bindings
