#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bindings/convert.hpp"
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"

namespace zerohop::bindings {
namespace {

using engine::Memory;
using engine::Peer;
using engine::RemoteMemory;

std::uint32_t to_u32(py::handle value, const char* what) {
  if (!PyLong_Check(value.ptr())) {
    throw py::type_error(std::string(what) + " must be an int, not " +
                         Py_TYPE(value.ptr())->tp_name);
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0 || number < 0 || number > std::numeric_limits<std::uint32_t>::max()) {
    throw py::value_error(std::string(what) + " must be from 0 to 2**32 - 1");
  }
  return static_cast<std::uint32_t>(number);
}

// 64 bits with or without sign: atomics do not care, their element type says how to read them.
std::uint64_t to_word(py::handle value, const char* what) {
  if (!PyLong_Check(value.ptr())) {
    throw py::type_error(std::string(what) + " must be an int, not " +
                         Py_TYPE(value.ptr())->tp_name);
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow == 0) return static_cast<std::uint64_t>(number);
  const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(value.ptr()) : 0;
  if (overflow < 0 || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::value_error(std::string(what) + " must fit 64 bits");
  }
  return large;
}

std::optional<engine::Notification> to_notification(const py::object& notify) {
  if (notify.is_none()) return std::nullopt;
  if (!py::isinstance<py::tuple>(notify) || py::len(notify) != 2) {
    throw py::type_error("notify must be a tuple (slot, value)");
  }
  const auto pair = py::reinterpret_borrow<py::tuple>(notify);
  return engine::Notification{to_u32(pair[0], "a notification slot"),
                              to_u32(pair[1], "a notification value")};
}

// What the transfer calls have in common.
struct Extras {
  py::object notify;
  py::object stream;
  std::optional<std::string> require;
  std::optional<double> timeout;

  engine::TransferOptions options() const {
    if (!stream.is_none()) {
      throw RouteUnavailable(
          "stream= needs a GPU route, which this build has not: synchronise the "
          "stream, then call without it");
    }
    return {.notify = to_notification(notify), .require = require.value_or(""), .timeout = timeout};
  }
};

TransferHandle handle_of(const PeerHandle& self, std::shared_ptr<engine::Transfer> transfer,
                         ResultKind kind = ResultKind::none) {
  return {self.endpoint, std::move(transfer), kind, self.peer->host_route()};
}

// Of a write or read of these pairs.
TransferHandle handle_of(const PeerHandle& self, std::shared_ptr<engine::Transfer> transfer,
                         std::span<const Peer::Pair> pairs) {
  return {self.endpoint, std::move(transfer), ResultKind::none, self.peer->route_of(pairs)};
}

ResultKind word_kind(const RemoteMemory& word) {
  return word.layout.dtype.code == kDTypeUInt ? ResultKind::unsigned_word : ResultKind::signed_word;
}

TransferHandle write(const PeerHandle& self, py::handle source, const RemoteMemory& destination,
                     py::object notify, py::object stream, std::optional<std::string> require,
                     std::optional<double> timeout) {
  const auto options =
      Extras{std::move(notify), std::move(stream), std::move(require), timeout}.options();
  const LocalArray local(*self.endpoint, source);
  const Peer::Pair pair{&*local, &destination};
  return handle_of(self, without_gil([&] { return self.peer->write({&pair, 1}, options); }),
                   std::span(&pair, 1));
}

TransferHandle read(const PeerHandle& self, const RemoteMemory& source, py::handle destination,
                    py::object notify, py::object stream, std::optional<std::string> require,
                    std::optional<double> timeout) {
  const auto options =
      Extras{std::move(notify), std::move(stream), std::move(require), timeout}.options();
  const LocalArray local(*self.endpoint, destination);
  const Peer::Pair pair{&*local, &source};
  return handle_of(self, without_gil([&] { return self.peer->read({&pair, 1}, options); }),
                   std::span(&pair, 1));
}

// The pairs of write_many (local first) or read_many (remote first).
struct Pairs {
  py::tuple items;                 // keeps the members alive, which a generator makes only for us
  std::vector<Memory> registered;  // of members that are plain arrays
  std::vector<Peer::Pair> pairs;

  Pairs(engine::Endpoint& endpoint, const py::iterable& list, std::size_t local) : items(list) {
    const std::size_t count = items.size();
    pairs.reserve(count);
    registered.reserve(count);  // pointers into it stay valid
    for (const py::handle item : items) {
      if (!PyTuple_Check(item.ptr()) || PyTuple_GET_SIZE(item.ptr()) != 2) {
        throw py::type_error("each entry must be a tuple of a local and a remote array");
      }
      const py::handle mine = PyTuple_GET_ITEM(item.ptr(), static_cast<Py_ssize_t>(local));
      const py::handle theirs = PyTuple_GET_ITEM(item.ptr(), static_cast<Py_ssize_t>(1 - local));
      const Memory* memory = find_memory(mine);
      if (memory == nullptr) {
        memory = &registered.emplace_back(register_array(endpoint, mine, {}, /*cache=*/true));
      }
      pairs.emplace_back(memory, &py::cast<const RemoteMemory&>(theirs));
    }
  }
};

template <std::size_t kLocal>
TransferHandle many(const PeerHandle& self, const py::iterable& list, py::object notify,
                    py::object stream, std::optional<std::string> require,
                    std::optional<double> timeout) {
  const auto options =
      Extras{std::move(notify), std::move(stream), std::move(require), timeout}.options();
  const Pairs pairs(*self.endpoint, list, kLocal);
  return handle_of(self, without_gil([&] {
                     return kLocal == 0 ? self.peer->write(pairs.pairs, options)
                                        : self.peer->read(pairs.pairs, options);
                   }),
                   pairs.pairs);
}

RemoteMemory lookup(const PeerHandle& self, const py::str& text, std::optional<double> timeout) {
  const std::string name = text;
  const Deadline deadline = self.endpoint->deadline(timeout);
  return without_gil([&] { return *self.peer->lookup(name, deadline, /*now=*/false); });
}

RemoteMemory get_item(const PeerHandle& self, const py::str& text) {
  const std::string name = text;
  const Deadline deadline = self.endpoint->deadline({});
  const auto found = without_gil([&] { return self.peer->lookup(name, deadline, /*now=*/true); });
  if (!found) {
    throw py::key_error("peer '" + self.peer->identity().name +
                        "' shares nothing under the name '" + name +
                        "'; lookup(name, timeout=...) waits for it");
  }
  return *found;
}

py::dict stats(const PeerHandle& self) {
  const engine::PathStats& counters = self.peer->stats();
  py::dict all;
  all["work_requests"] = counters.work_requests.load();
  all["doorbells"] = counters.doorbells.load();
  all["bytes_out"] = counters.bytes_out.load();
  all["bytes_in"] = counters.bytes_in.load();
  all["messages_in"] = counters.messages_in.load();
  all["notifications_in"] = counters.notifications_in.load();
  all["queue_full"] = counters.queue_full.load();
  all["queue_pair_errors"] = counters.broken.load();
  return all;
}

std::string describe(const PeerHandle& self) {
  const auto& identity = self.peer->identity();
  return "<zerohop.Peer '" + identity.name + "' on " + identity.host_name +
         (self.peer->alive() ? ">" : ", lost>");
}

void bind_transfers(py::class_<PeerHandle, std::shared_ptr<PeerHandle>>& type) {
  const auto notify = py::arg("notify") = py::none();
  const auto stream = py::arg("stream") = py::none();
  const auto require = py::arg("require") = py::none();
  const auto timeout = py::arg("timeout") = py::none();
  type.def("write", &write, py::arg("source"), py::arg("destination"), py::kw_only(), notify,
           stream, require, timeout, R"(
Write a local array into a remote one of the same shape and dtype (RDMA write).

source: Memory, or an array, which is registered for this call. destination: RemoteMemory.
notify: (slot, value) to put on the peer's notification board behind the data; value is not 0.
require: the only kind of route to take, for instance "host"; RouteUnavailable says why not.
timeout: seconds that a full queue may hold this call up (default: the Endpoint's); the transfer is
accepted even then. stream: not in this build.

Returns a Transfer. Raises PeerLost, RegistrationError (closed memory), RouteUnavailable, ValueError
(shapes, dtypes or rights that do not fit).)")
      .def("read", &read, py::arg("source"), py::arg("destination"), py::kw_only(), notify, stream,
           require, timeout, R"(
Read a remote array into a local one of the same shape and dtype (RDMA read). With notify the peer is
notified once the data has arrived here. Otherwise as write().)")
      .def("write_many", &many<0>, py::arg("pairs"), py::kw_only(), notify, stream, require,
           timeout,
           R"(
Write many arrays as one Transfer, with one doorbell for up to 32 work requests.

pairs: list, generator, ... of (Memory or array, RemoteMemory). Otherwise as write(); the notification follows the last.)")
      .def("read_many", &many<1>, py::arg("pairs"), py::kw_only(), notify, stream, require, timeout,
           "Read many arrays as one Transfer. pairs: as for write_many, of (RemoteMemory, Memory "
           "or array).")
      .def(
          "fetch_add",
          [](const PeerHandle& self, const RemoteMemory& word, const py::object& value) {
            const std::uint64_t add = to_word(value, "the summand");
            return handle_of(self, without_gil([&] { return self.peer->fetch_add(word, add); }),
                             word_kind(word));
          },
          py::arg("remote"), py::arg("value"), R"(
Add to one remote 8-byte element (int64 or uint64, aligned to 8), atomically among all operations of
the peer's device; wait() returns the old value. Overflow wraps.)")
      .def(
          "compare_swap",
          [](const PeerHandle& self, const RemoteMemory& word, const py::object& expected,
             const py::object& desired) {
            const std::uint64_t old_value = to_word(expected, "the expected value");
            const std::uint64_t new_value = to_word(desired, "the desired value");
            return handle_of(self, without_gil([&] {
                               return self.peer->compare_swap(word, old_value, new_value);
                             }),
                             word_kind(word));
          },
          py::arg("remote"), py::arg("expected"), py::arg("desired"), R"(
Replace one remote 8-byte element by `desired` if it equals `expected`, atomically as fetch_add();
wait() returns the old value, which tells whether it did.)")
      .def(
          "notify",
          [](const PeerHandle& self, const py::object& slot, const py::object& value) {
            const engine::Notification notification{to_u32(slot, "a notification slot"),
                                                    to_u32(value, "a notification value")};
            return handle_of(self, without_gil([&] { return self.peer->notify(notification); }));
          },
          py::arg("slot"), py::arg("value"), R"(
Put a value (not 0) into a slot (0 to 65535) of the peer's notification board. It is not seen before
the data of any write() called earlier.)");
}

void bind_messages(py::class_<PeerHandle, std::shared_ptr<PeerHandle>>& type) {
  type.def(
          "send",
          [](const PeerHandle& self, const py::object& array, const py::object& tag) {
            const std::uint32_t number = to_u32(tag, "a tag");
            const LocalArray local(*self.endpoint, array);
            return handle_of(self, without_gil([&] { return self.peer->send(*local, number); }));
          },
          py::arg("array"), py::arg("tag") = 0, R"(
Send an array (or Memory) to a matching recv of the peer, in order for each tag (0 to 2**32 - 1).

Up to 4064 bytes are copied and done when they are in the peer's memory; larger arrays stay where they
are until the peer's recv has read them. Bytes are matched, not shapes or dtypes.)")
      .def(
          "recv",
          [](const PeerHandle& self, const py::object& array, const py::object& tag) {
            const std::uint32_t number = to_u32(tag, "a tag");
            const LocalArray local(*self.endpoint, array);
            return handle_of(self, without_gil([&] { return self.peer->receive(*local, number); }),
                             ResultKind::nbytes);
          },
          py::arg("array"), py::arg("tag") = 0, R"(
Receive the next message of that tag into an array (or Memory); wait() returns its number of bytes.

A shorter message fills the beginning of a contiguous array. One that does not fit raises ValueError
and stays for another recv.)");
}

}  // namespace

void bind_peer(py::module_& m) {
  py::class_<PeerHandle, std::shared_ptr<PeerHandle>> type(m, "Peer", R"(
The connection to one remote Endpoint, made by ``Endpoint.connect`` or ``Endpoint.accept``.

When the peer dies, hangs or leaves, every pending and later operation raises PeerLost within 5 seconds.
An operation that fails otherwise (memory the peer has closed, say) takes those in flight with it, and
later ones work again.)");
  bind_transfers(type);
  bind_messages(type);
  type.def("lookup", &lookup, py::arg("name"), py::arg("timeout") = py::none(), R"(
The memory the peer shares under `name`; waits for it to be shared, at most `timeout` seconds (default: the
Endpoint's). Raises TransferTimeout, PeerLost.)")
      .def("__getitem__", &get_item, py::arg("name"),
           "The memory the peer shares under `name`; KeyError if it shares none.")
      .def(
          "route",
          [](const PeerHandle& self, py::handle local, const RemoteMemory& remote) {
            return self.peer->route(*LocalArray(*self.endpoint, local), remote);
          },
          py::arg("local"), py::arg("remote"), "Which way bytes between the two would go, and why.")
      .def_property_readonly("alive", [](const PeerHandle& self) { return self.peer->alive(); })
      .def_property_readonly(
          "id", [](const PeerHandle& self) { return engine::to_hex(self.peer->identity().id); })
      .def_property_readonly("name",
                             [](const PeerHandle& self) { return self.peer->identity().name; })
      .def_property_readonly("host",
                             [](const PeerHandle& self) { return self.peer->identity().host_name; })
      .def_property_readonly("pid",
                             [](const PeerHandle& self) { return self.peer->identity().pid; })
      .def("stats", &stats, "Counters since the connection was made, as a dict of ints.")
      .def(
          "close",
          [](const PeerHandle& self, std::optional<double> timeout) {
            const Deadline deadline = self.endpoint->deadline(timeout);
            without_gil([&] { self.peer->close(deadline); });
          },
          py::arg("timeout") = py::none(), R"(
Let what is posted finish, at most `timeout` seconds (default: the Endpoint's), then leave. The other side
sees PeerLost. Calling it again does nothing.

A send() of more than 4064 bytes is posted as an offer and its bytes leave with the recv of the other side:
close() does not wait for that recv, and a send still without one ends with PeerLost. Wait for its Transfer first.)")
      .def("__repr__", &describe);
}

}  // namespace zerohop::bindings
