// Time ranges for profilers.
#include <pybind11/pybind11.h>

#include "base/nvtx.hpp"
#include "bindings/topics.hpp"

namespace zerohop::bindings {

void bind_trace(pybind11::module_& m) {
  m.def("has_nvtx", trace::has_nvtx,
        "Whether profilers see transfers as NVTX ranges: built with its headers.");
}

}  // namespace zerohop::bindings
