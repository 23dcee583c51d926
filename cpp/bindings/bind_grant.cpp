// Revocable rights to memory.
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
A revocable right to some memory, for peers: made by ``Endpoint.grant``. Leaving a ``with`` block revokes it;
so does dropping it.)")
      .def_property_readonly("remote", &Grant::remote, R"(
The ``RemoteMemory`` to send to peers. Raises RegistrationError with the reason once the grant has ended.)")
      .def_property_readonly("writable", &Grant::writable, "Whether it allows writing.")
      .def_property_readonly("revoked", &Grant::revoked,
                             "Whether it was revoked, has expired or its memory was closed, and "
                             "no peer has access any more.")
      .def("revoke", &Grant::revoke, py::call_guard<GilReleased>(), R"(
Revoke it. When this returns, no holder of its ``remote`` reads or writes the memory any more: attempts are
refused as for closed memory. That also holds if another thread, expiry or closing of the memory has begun to
end it. Waits at most five seconds for copies of GPU memory that the Endpoint makes itself (route ``staged``);
a copy that hangs is reported. Calling it again does nothing.)")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Grant& self, const py::args&) { without_gil([&] { self.revoke(); }); })
      .def("__repr__", &describe_grant);
}

void bind_grants(EndpointClass& type) {
  type.def("grant", &grant, py::arg("memory"), py::kw_only(), py::arg("writable") = false,
           py::arg("timeout") = py::none(), R"(
The right to read some memory of this Endpoint, revocable while the memory stays registered: a ``Grant``.

memory: Memory, or a slice of one; a separate key reaches from its first to its last byte.
writable: whether peers may also write it, and use atomics.
timeout: seconds after which it expires; None: never.

Revocable memory is never mapped by processes of this host: they too access it through a device, which is
slower than the route p2p. The grant ends when its Memory is closed. Raises RegistrationError, TypeError,
ValueError (more than the memory itself allows).)");
}

}  // namespace zerohop::bindings
