// Rights to memory that can be taken back.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/arguments.hpp"
#include "bindings/bind_endpoint.hpp"
#include "bindings/demands.hpp"
#include "bindings/gil.hpp"
#include "bindings/topics.hpp"
#include "engine/memory/grant.hpp"

namespace zerohop::bindings {
namespace {

using engine::Endpoint;
using engine::Grant;

Grant grant(Endpoint& self, Shown<engine::Memory> object, bool writable, const Timeout& timeout) {
  const engine::Memory& memory = demand_memory(object.object, "memory");
  engine::GrantOptions options{.writable = writable};
  if (timeout.seconds) options.seconds = std::chrono::duration<double>(*timeout.seconds);
  return without_gil([&] { return self.grant(memory, options); });
}

std::string describe_grant(const Grant& grant) {
  return std::string("<zerohop.Grant to ") + (grant.writable() ? "write " : "read ") +
         shape_string(grant.layout().shape.span()) + " " + grant.layout().dtype.name() +
         (grant.revoked() ? ", revoked" : "") + ">";
}

}  // namespace

void bind_grant(py::module_& m) {
  py::class_<Grant>(m, "Grant", R"(
The right to some memory, to be given to peers and taken back: made by ``Endpoint.grant``. As a context manager it is
revoked at the end of the ``with``; else when it is dropped.)")
      .def_property_readonly("remote", &Grant::remote, R"(
The ``RemoteMemory`` to give away. Raises RegistrationError, which says why, once it has ended.)")
      .def_property_readonly("writable", &Grant::writable, "Whether it allows to write.")
      .def_property_readonly("revoked", &Grant::revoked,
                             "Whether it was revoked, or its time or its memory has ended, and "
                             "nobody has it any more.")
      .def("revoke", &Grant::revoke, py::call_guard<GilReleased>(), R"(
Take it back. When this returns, nobody who has its ``remote`` reads or writes the memory any more: what they try is
refused as memory that was closed. That holds where another thread, its time or its memory has begun to end it, too. Copies
of GPU memory that the Endpoint makes itself (route ``staged``) are waited for, five seconds at most; one that hangs is
reported. Calling it again does nothing.)")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Grant& self, const py::args&) { without_gil([&] { self.revoke(); }); })
      .def("__repr__", &describe_grant);
}

void bind_grants(EndpointClass& type) {
  type.def("grant", &grant, py::arg("memory"), py::kw_only(), py::arg("writable") = false,
           py::arg("timeout") = py::none(), R"(
The right to read some memory of this Endpoint, which can be taken back while the memory goes on: a ``Grant``.

memory: Memory, or a slice of one; a key of its own reaches from its first to its last byte.
writable: whether peers may write it, too, and have atomics.
timeout: seconds after which it ends by itself; None: it does not.

What can be revoked is never mapped by processes of this host: they reach it by a device, too, which is slower than
the route p2p. It ends when its Memory is closed. Raises RegistrationError, TypeError, ValueError (more than the memory
itself allows).)");
}

}  // namespace zerohop::bindings
