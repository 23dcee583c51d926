// Reductions of arrays in a GPU's memory, held by Python.
#pragma once

#include <memory>

#include "bindings/handles.hpp"
#include "gpu/reducer.hpp"

namespace zerohop::bindings {

struct GpuReducerHandle {
  EndpointHandle endpoint;
  std::shared_ptr<gpu::Reducer> reducer;
};

}  // namespace zerohop::bindings
