// How objects are displayed in a notebook: zerohop.notebook, imported on demand, draws them.
#include <pybind11/pybind11.h>

#include "bindings/topics.hpp"

namespace zerohop::bindings {

namespace py = pybind11;

void bind_notebook(py::module_& m) {
  for (const char* name : {"Route", "Transfer", "RemoteMemory", "Memory", "Peer", "Endpoint"}) {
    const py::object type = m.attr(name);
    type.attr("_repr_html_") = py::cpp_function(
        [](const py::object& self) -> py::str {
          return py::module_::import("zerohop.notebook").attr("html")(self);
        },
        py::name("_repr_html_"), py::is_method(type), "For a notebook.");
  }
}

}  // namespace zerohop::bindings
