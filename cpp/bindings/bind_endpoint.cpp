#include "bindings/bind_endpoint.hpp"

#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bindings/convert.hpp"
#include "bindings/demands.hpp"
#include "bindings/dropped.hpp"
#include "bindings/knobs.hpp"
#include "bindings/topics.hpp"
#include "engine/core/device_choice.hpp"

namespace zerohop::bindings {
namespace {

using engine::Endpoint;

// Python's signal handlers (Ctrl-C) run between the steps of a long wait.
void check_signals() {
  const GilTaken gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

std::chrono::microseconds to_microseconds(double seconds) {
  constexpr double kMost = 1e6;  // longer than any wait, and no overflow
  return std::chrono::microseconds(std::llround(std::min(seconds, kMost) * 1e6));
}

EndpointHandle make_endpoint(const std::string& device, const std::string& name, double timeout,
                             double spin, const std::string& host, const std::string& registration,
                             const std::map<std::string, int>& knobs,
                             const std::map<std::string, engine::RailIndex>& nearest,
                             const std::vector<std::string>& preferred,
                             const std::string& preference, const std::string& faults) {
  engine::EndpointOptions options{.device = device,
                                  .preference = {preferred, preference},
                                  .port = {},
                                  .queue_pair = {},
                                  .messages = {},
                                  .gpu = {},
                                  .nearest = nearest,
                                  .name = name,
                                  .timeout = timeout,
                                  .spin = to_microseconds(spin),
                                  .host = host,
                                  .interrupt = &check_signals,
                                  .cuda = nullptr,
                                  .open_devices = nullptr,
                                  .faults = softhca::Faults::parse(faults)};
  options.gpu.registration = engine::parse_registration(registration);
  set_knobs(options, knobs);
  return without_gil([&] { return std::make_shared<Endpoint>(options); });
}

std::shared_ptr<PeerHandle> connect(const EndpointHandle& self, Shown<py::bytes> address,
                                    Timeout timeout) {
  const py::bytes held = demand_bytes(address.object, "an address");
  const auto bytes = as_bytes(held);
  const auto dial = [&](const Deadline& deadline) { return self->connect(bytes, deadline); };
  return face_of(self, waiting(*self, timeout.seconds, dial));
}

std::shared_ptr<PeerHandle> accept(const EndpointHandle& self, Timeout timeout) {
  const auto take = [&](const Deadline& deadline) { return self->accept(deadline); };
  return face_of(self, waiting(*self, timeout.seconds, take));
}

std::vector<std::shared_ptr<PeerHandle>> peers(const EndpointHandle& self) {
  std::vector<std::shared_ptr<PeerHandle>> handles;
  for (const auto& peer : self->peers()) handles.push_back(face_of(self, peer));
  return handles;
}

std::vector<py::dict> device_events(const Endpoint& self) {
  using namespace py::literals;
  std::vector<py::dict> events;
  for (const engine::DeviceEvent& event : self.device_events()) {
    const std::chrono::duration<double> since_epoch = event.at.time_since_epoch();
    events.push_back(py::dict("time"_a = since_epoch.count(), "device"_a = event.device,
                              "type"_a = event.type, "port"_a = event.port, "peer"_a = event.peer,
                              "message"_a = event.message));
  }
  return events;
}

}  // namespace

void bind_endpoint(py::module_& m) {
  m.def("device_names", &engine::device_names);
  m.attr("DEFAULT_P2P") = engine::EndpointOptions{}.p2p ? 1 : 0;
  m.attr("DEFAULT_STAGING_CHUNK") = engine::kDefaultStagingChunk;
  m.attr("DEFAULT_MESSAGE_SLOTS") = engine::MessageWindow{}.slots;
  m.attr("DEFAULT_MESSAGE_BYTES") = engine::MessageWindow{}.nbytes;
  m.attr("DEFAULT_CACHE_ENTRIES") = engine::RegionCache::Limits{}.entries;
  EndpointClass type(m, "Endpoint");
  type.def(py::init(&make_endpoint), py::arg("device"), py::arg("name"), py::arg("timeout"),
           py::arg("spin"), py::arg("host"), py::arg("registration"), py::arg("knobs"),
           py::arg("nearest"), py::arg("preferred"), py::arg("preference"), py::arg("faults") = "")
      .def_property_readonly(
          "address", [](const Endpoint& self) { return to_bytes(self.address().to_bytes()); },
          "What another Endpoint needs to connect: bytes. Contains a secret.")
      .def_property_readonly(
          "id", [](const Endpoint& self) { return engine::to_hex(self.address().id); },
          "A globally unique id, hexadecimal; not a secret.")
      .def_property_readonly(
          "name", [](const Endpoint& self) { return self.address().name; },
          "For messages, here and at its peers.")
      .def_property_readonly(
          "device", [](const Endpoint& self) { return self.address().device; },
          "The verbs device, for instance ``\"soft0\"``; several are separated by commas.")
      .def_property_readonly("timeout", &Endpoint::timeout, "Default bound of a wait, in seconds.")
      .def_property_readonly("closed", &Endpoint::closed, "Whether close() was called.")
      .def_property_readonly("peers", &peers, "The Peers that are connected now.")
      .def_property_readonly("device_events", &device_events, R"(
Asynchronous events of the devices, newest last, at most 64: dicts of ``time`` (seconds since the epoch),
``device``, ``type`` (``"PORT_ERR"``: man ibv_get_async_event), ``port`` (0: none), ``peer`` (whose queue pair
it concerns, else ``""``) and ``message``, with the remedy. Events that mean trouble for a device or a port are
also RuntimeWarnings. Empty once closed.)")
      .def("connect", &connect, py::arg("address"), py::arg("timeout") = py::none(), R"(
Connect to the Endpoint with that address (bytes) and return its Peer; if the two are connected already, the
existing one. Both sides may call it at once.

Raises TransferTimeout (no answer within `timeout` seconds; default: the Endpoint's), PeerLost (refused),
AuthenticationError (the secret does not match), ProtocolError (damaged address).)")
      .def("accept", &accept, py::arg("timeout") = py::none(), R"(
The next Peer that connected to this Endpoint and was not returned before. Raises TransferTimeout.)")
      .def(
          "close",
          [](Endpoint& self, Timeout timeout) {
            const Deadline deadline = self.deadline(timeout.seconds);
            if (self.of_parent()) return;
            close_and_tell(self.peers(), [&] { self.close(deadline); });
          },
          py::arg("timeout") = py::none(), R"(
Let posted operations finish, at most `timeout` seconds (default: the Endpoint's), leave every peer and stop.
Calling it again does nothing. RuntimeWarning: it dropped a send(), as Peer.close() explains.)");
  bind_registered_memory(type);
  bind_grants(type);
  bind_notifications(type);
  bind_endpoint_stats(type);
  bind_faults(m, type);
}

}  // namespace zerohop::bindings
