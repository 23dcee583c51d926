#include "bindings/bind_peer.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <string>
#include <utility>

#include "base/error.hpp"
#include "bindings/demands.hpp"
#include "bindings/dropped.hpp"
#include "bindings/topics.hpp"

namespace zerohop::bindings {
namespace {

using engine::Memory;
using engine::Peer;
using engine::RemoteMemory;
using Name = Shown<py::str>;
using Remote = Shown<RemoteMemory>;

RemoteMemory lookup(const PeerHandle& self, Name text, Timeout timeout) {
  const std::string name = demand_str(text.object, "a name");
  return waiting(*self.endpoint, timeout.seconds, [&](const Deadline& deadline) {
    return *self.peer->lookups().find(name, deadline, /*now=*/false);
  });
}

std::optional<RemoteMemory> find_shared(const PeerHandle& self, const std::string& name) {
  return waiting(*self.endpoint, {}, [&](const Deadline& deadline) {
    return self.peer->lookups().find(name, deadline, /*now=*/true);
  });
}

bool contains(const PeerHandle& self, Name text) {
  return find_shared(self, demand_str(text.object, "a name")).has_value();
}

RemoteMemory get_item(const PeerHandle& self, Name text) {
  const std::string name = demand_str(text.object, "a name");
  const auto found = find_shared(self, name);
  if (!found) {
    throw py::key_error("peer '" + self.peer->identity().name +
                        "' shares nothing under the name '" + name +
                        "'; lookup(name, timeout=...) waits for it");
  }
  return *found;
}

std::string describe_peer(const PeerHandle& self) {
  const auto& identity = self.peer->identity();
  return "<zerohop.Peer '" + identity.name + "' on " + identity.host_name +
         (self.alive() ? ">" : ", lost>");
}

}  // namespace

void bind_peer(py::module_& m) {
  PeerClass type(m, "Peer", R"(
The connection to one remote Endpoint, made by ``Endpoint.connect`` or ``Endpoint.accept``.

When the peer dies, hangs or leaves, every pending and later operation raises PeerLost within 5 seconds. An
operation that fails otherwise (for example because the peer has closed the memory) also fails those in flight;
later ones work again.)");
  bind_transfers(type);
  bind_messages(m, type);
  bind_stats(type);
  type.def("lookup", &lookup, py::arg("name"), py::arg("timeout") = py::none(), R"(
The memory the peer shares under `name`; waits for it to be shared, at most `timeout` seconds (default: the
Endpoint's). Raises TransferTimeout, PeerLost.)")
      .def("__getitem__", &get_item, py::arg("name"),
           "The memory the peer shares under `name`; KeyError if it shares none.")
      .def("__contains__", &contains, py::arg("name"),
           "Whether the peer shares memory under `name` now. Asks the peer, like peer[name].")
      // Without it Python would call peer[0], and complain that a name must be a str.
      .def("__iter__",
           [](const PeerHandle&) -> py::typing::Iterator<py::str> {
             throw py::type_error(
                 "a Peer does not list what it shares: peer[name] looks a name up, and "
                 "peer.lookup(name) waits for it");
           })
      .def(
          "route",
          [](const PeerHandle& self, py::handle local, Remote remote) {
            const RemoteMemory& theirs = demand_remote(remote.object, "remote", local);
            return self.peer->route(*LocalArray(*self.endpoint, local), theirs);
          },
          py::arg("local"), py::arg("remote"), R"(
The route of bytes between the two, and why; where it is not p2p, why not. A transfer may still go through the
device, as its own ``route`` then shows: when a device has earlier work with the peer to finish.

Raises PeerLost, RegistrationError (`local` is closed), RouteUnavailable (there is none).)")
      .def_property_readonly(
          "alive", [](const PeerHandle& self) { return self.alive(); },
          "Whether it is connected; False once it is lost, and in a forked child.")
      .def_property_readonly(
          "why_lost",
          [](const PeerHandle& self) -> std::optional<std::string> {
            if (self.process != fork_generation()) return std::nullopt;
            std::string why = self.peer->why_lost();
            return why.empty() ? std::nullopt : std::optional(std::move(why));
          },
          "Why it was lost, such as ``'its process has ended'``; None while connected, and in a "
          "forked child.")
      .def_property_readonly(
          "timeout", [](const PeerHandle& self) { return self.endpoint->timeout(); },
          "Default bound of a wait, in seconds: the Endpoint's.")
      .def_property_readonly(
          "id", [](const PeerHandle& self) { return engine::to_hex(self.peer->identity().id); },
          "The ``id`` of its Endpoint, hexadecimal.")
      .def_property_readonly(
          "name", [](const PeerHandle& self) { return self.peer->identity().name; },
          "The ``name`` of its Endpoint.")
      .def_property_readonly(
          "host", [](const PeerHandle& self) { return self.peer->identity().host_name; },
          "The name of its process's host.")
      .def_property_readonly(
          "pid", [](const PeerHandle& self) { return self.peer->identity().pid; },
          "The id of its process, on its host.")
      .def(
          "close",
          [](const PeerHandle& self, Timeout timeout) {
            const Deadline deadline = self.endpoint->deadline(timeout.seconds);
            if (self.process != fork_generation()) return;  // belongs to the parent
            close_and_tell({self.peer}, [&] { self.peer->close(deadline); });
          },
          py::arg("timeout") = py::none(), R"(
Let posted operations finish, at most `timeout` seconds (default: the Endpoint's), then leave. The other side
sees PeerLost. Calling it again does nothing. What has not finished by then ends with PeerLost, and the logger
zerohop.transfer records how much that was.

A send() of more than 16384 bytes is posted as an offer; its bytes leave when the other side calls recv(), and
close() does not wait for that. A send still without a recv is dropped: its Transfer ends with PeerLost, and
close() gives a RuntimeWarning. Wait for the Transfer first.)")
      .def("__repr__", &describe_peer);
}

}  // namespace zerohop::bindings
