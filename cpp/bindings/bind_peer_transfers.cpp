// The calls of a Peer that move data.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bindings/bind_peer.hpp"
#include "bindings/demands.hpp"
#include "bindings/page_indices.hpp"

namespace zerohop::bindings {
namespace {

using engine::Memory;
using engine::Peer;
using engine::RemoteMemory;
using Remote = Shown<RemoteMemory>;
using Route = Shown<std::optional<std::string>>;

std::optional<engine::Notification> to_notification(py::handle notify) {
  if (notify.is_none()) return std::nullopt;
  const bool pair = PyTuple_Check(notify.ptr()) || PyList_Check(notify.ptr());
  if (!pair || PySequence_Fast_GET_SIZE(notify.ptr()) != 2) {
    throw py::type_error("notify must be a pair (slot, value), not " + a_type_name(notify) +
                         (pair ? " of " + std::to_string(py::len(notify)) : ""));
  }
  // Hold a reference: the list may change while its first item's __index__ runs.
  const auto slot = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(notify.ptr(), 0));
  const auto value = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(notify.ptr(), 1));
  return demand_notification(slot, value);
}

TransferHandle handle_of(const PeerHandle& self, const Asked& asked,
                         std::shared_ptr<engine::Transfer> transfer,
                         ResultKind kind = ResultKind::none) {
  transfer->hand_out();
  return {self.endpoint, std::move(transfer), kind, asked};
}

ResultKind word_kind(const RemoteMemory& word) {
  return word.layout.dtype.code == kDTypeUInt ? ResultKind::unsigned_word : ResultKind::signed_word;
}

TransferHandle write(const PeerHandle& self, py::handle source, Remote destination,
                     py::object notify, py::object stream, Route require, Timeout timeout) {
  return write_one(self, source, destination.object, {notify, stream, require, timeout});
}

TransferHandle read(const PeerHandle& self, Remote source, py::handle destination,
                    py::object notify, py::object stream, Route require, Timeout timeout) {
  return read_one(self, source.object, destination, {notify, stream, require, timeout});
}

TransferHandle notify_on(const PeerHandle& self, Shown<std::uint64_t> slot,
                         Shown<std::uint64_t> value, const py::object& stream, Timeout timeout) {
  return notify_one(self, slot.object, value.object, demand_stream(stream), timeout);
}

// The pairs of write_many (local first) or read_many (remote first).
struct Pairs {
  py::tuple items;                 // keeps the members alive; a generator creates them only for us
  std::vector<Memory> registered;  // of members that are plain arrays
  std::vector<Peer::Pair> pairs;

  Pairs(engine::Endpoint& endpoint, py::handle list, std::size_t local) : items(all_of(list)) {
    const std::size_t count = items.size();
    pairs.reserve(count);
    registered.reserve(count);  // pointers into it stay valid
    for (const py::handle item : items) {
      if (!PyTuple_Check(item.ptr()) || PyTuple_GET_SIZE(item.ptr()) != 2) refuse(item, local);
      const py::handle mine = PyTuple_GET_ITEM(item.ptr(), static_cast<Py_ssize_t>(local));
      const py::handle theirs = PyTuple_GET_ITEM(item.ptr(), static_cast<Py_ssize_t>(1 - local));
      const RemoteMemory* remote = find_remote(theirs);
      if (remote == nullptr) refuse(item, local);
      const Memory* memory = find_memory(mine);
      if (memory == nullptr) {
        if (find_remote(mine) != nullptr) refuse(item, local);
        memory = &registered.emplace_back(take(endpoint, mine));
      }
      pairs.emplace_back(memory, remote);
    }
  }

 private:
  static py::tuple all_of(py::handle list) {
    if (!py::isinstance<py::iterable>(list)) {
      throw py::type_error("pairs must be a list of pairs of arrays, not " + type_name(list));
    }
    return py::tuple(py::reinterpret_borrow<py::object>(list));
  }

  std::string which() const { return "pair " + std::to_string(pairs.size()); }

  Memory take(engine::Endpoint& endpoint, py::handle array) const {
    try {
      return register_array(endpoint, array, {}, /*cache=*/true);
    } catch (const py::type_error& error) {
      throw py::type_error(which() + ": " + error.what());
    }
  }

  [[noreturn]] void refuse(py::handle item, std::size_t local) const {
    const char* wanted = local == 0 ? "(local, remote)" : "(remote, local)";
    if (!PyTuple_Check(item.ptr()) || PyTuple_GET_SIZE(item.ptr()) != 2) {
      const std::string of =
          PyTuple_Check(item.ptr()) ? " of " + std::to_string(py::len(item)) : std::string();
      throw py::type_error(which() + " must be a tuple " + wanted + ", not " + a_type_name(item) +
                           of);
    }
    const auto pair = py::reinterpret_borrow<py::tuple>(item);
    const bool swapped =
        find_remote(pair[local]) != nullptr && find_remote(pair[1 - local]) == nullptr;
    throw py::type_error(which() + (swapped ? " is swapped: " : ": it must be ") + wanted +
                         " arrays, the remote one a RemoteMemory, not (" + type_name(pair[0]) +
                         ", " + type_name(pair[1]) + ")");
  }
};

template <std::size_t kLocal>
TransferHandle many(const PeerHandle& self, Shown<py::iterable> list, py::object notify,
                    py::object stream, Route require, Timeout timeout) {
  const auto options = Extras{notify, stream, require, timeout}.options();
  const Pairs pairs(*self.endpoint, list.object, kLocal);
  constexpr Asked kAsked = kLocal == 0 ? Asked{"write_many", "to"} : Asked{"read_many", "from"};
  return handle_of(self, kAsked, without_gil([&] {
                     return kLocal == 0 ? self.peer->write(pairs.pairs, options)
                                        : self.peer->read(pairs.pairs, options);
                   }));
}

// 0 for an array without axes, which the engine refuses.
std::int64_t page_count(const Layout& layout) { return layout.ndim() > 0 ? layout.shape[0] : 0; }

TransferHandle write_pages(const PeerHandle& self, py::handle source, Remote destination,
                           py::handle source_pages, py::handle destination_pages, py::object notify,
                           py::object stream, Route require, Timeout timeout) {
  const auto options = Extras{notify, stream, require, timeout}.options();
  const RemoteMemory& remote = demand_remote(destination.object, "destination", source);
  const LocalArray local(*self.endpoint, source);
  const auto ours = demand_pages(source_pages, "source_pages", page_count((*local).layout()));
  const auto theirs =
      demand_pages(destination_pages, "destination_pages", page_count(remote.layout));
  const engine::Pages pages{&*local, &remote, ours, theirs};
  return handle_of(self, {"write_pages", "to"},
                   without_gil([&] { return self.peer->write_pages(pages, options); }));
}

TransferHandle read_pages(const PeerHandle& self, Remote source, py::handle destination,
                          py::handle source_pages, py::handle destination_pages, py::object notify,
                          py::object stream, Route require, Timeout timeout) {
  const auto options = Extras{notify, stream, require, timeout}.options();
  const RemoteMemory& remote = demand_remote(source.object, "source", destination);
  const LocalArray local(*self.endpoint, destination);
  const auto theirs = demand_pages(source_pages, "source_pages", page_count(remote.layout));
  const auto ours =
      demand_pages(destination_pages, "destination_pages", page_count((*local).layout()));
  const engine::Pages pages{&*local, &remote, ours, theirs};
  return handle_of(self, {"read_pages", "from"},
                   without_gil([&] { return self.peer->read_pages(pages, options); }));
}

}  // namespace

engine::TransferOptions Extras::options() const {
  return {.notify = to_notification(notify),
          .require = demand_route(require.object),
          .timeout = timeout.seconds,
          .stream = demand_stream(stream)};
}

// Releasing and retaking the GIL takes longer than copying a few bytes.
template <auto operation>
std::shared_ptr<engine::Transfer> move(Peer& peer, std::span<const Peer::Pair> pairs,
                                       engine::TransferOptions&& options) {
  options.briefly = true;
  {
    const ReleaseLater later;
    if (auto done = (peer.*operation)(pairs, options)) return done;
  }
  options.briefly = false;
  return without_gil([&] { return (peer.*operation)(pairs, options); });
}

TransferHandle write_one(const PeerHandle& self, py::handle source, py::handle destination,
                         const Extras& extras) {
  auto options = extras.options();
  const RemoteMemory& remote = demand_remote(destination, "destination", source);
  const LocalArray local(*self.endpoint, source);
  const Peer::Pair pair{&*local, &remote};
  return handle_of(self, {"write", "to"},
                   move<&Peer::write>(*self.peer, {&pair, 1}, std::move(options)));
}

TransferHandle notify_one(const PeerHandle& self, py::handle slot, py::handle value,
                          std::optional<driver::CudaStream> stream, Timeout timeout) {
  engine::TransferOptions options{.notify = demand_notification(slot, value),
                                  .require = {},
                                  .timeout = timeout.seconds,
                                  .stream = stream};
  return handle_of(self, {"notify", "to"}, move<&Peer::write>(*self.peer, {}, std::move(options)));
}

TransferHandle read_one(const PeerHandle& self, py::handle source, py::handle destination,
                        const Extras& extras) {
  auto options = extras.options();
  const RemoteMemory& remote = demand_remote(source, "source", destination);
  const LocalArray local(*self.endpoint, destination);
  const Peer::Pair pair{&*local, &remote};
  return handle_of(self, {"read", "from"},
                   move<&Peer::read>(*self.peer, {&pair, 1}, std::move(options)));
}

void bind_transfers(PeerClass& type) {
  const auto notify = py::arg("notify") = py::none();
  const auto stream = py::arg("stream") = py::none();
  const auto require = py::arg("require") = py::none();
  const auto timeout = py::arg("timeout") = py::none();
  type.def("write", &write, py::arg("source"), py::arg("destination"), py::kw_only(), notify,
           stream, require, timeout, R"(
Write a local array into a remote one of the same shape and dtype (RDMA write).

source: Memory, or an array, which is registered for this call. destination: RemoteMemory.
notify: (slot, value) to put on the peer's notification board after the data, slot 0 to 65535, value 1 to 2**32
- 1. When the Transfer is done the data has arrived; the notification becomes visible a moment later. A slot
holds one value: a later one replaces one that was not taken.
require: the only kind of route to take, for instance "host"; RouteUnavailable gives the reason why not.
timeout: seconds that a full queue may block this call (default: the Endpoint's); the transfer is accepted even
then.
stream: of the GPU of the local array, or, if that is in host memory, of any GPU that reaches the peer's: one
of PyTorch, CuPy or Numba, any object with ``__cuda_stream__``, or a handle as an int (0 or 1: the legacy
default stream). By p2p from or to a GPU array, data and notification are enqueued into that stream, and the
call does not wait: the transfer begins when the stream reaches it, and later work of the stream begins after
it. It follows earlier calls without a stream; calls in different streams are not ordered. On the other routes
the call waits, at most `timeout` seconds, until the stream has finished its work so far.
While the stream is being captured into a CUDA graph, the call becomes part of the graph, by p2p from or to a
GPU array; otherwise RouteUnavailable says why it cannot. Each replay then transfers what the arrays hold by
then. Of the notifications that replays put into a slot, the first has the given value, and each later one the
next (after 2**32 - 1 comes 1).
Without stream= a transfer begins after the earlier work of the default stream of the array's GPU: by p2p
without blocking; on the other routes the call waits for that work.

Returns a Transfer; in a capture one whose wait() raises Error, as it has no result of its own. Raises PeerLost,
RegistrationError (closed memory), RouteUnavailable, CudaError, TransferTimeout (the default stream), ValueError (shapes, dtypes or rights that do not fit).)")
      .def("read", &read, py::arg("source"), py::arg("destination"), py::kw_only(), notify, stream,
           require, timeout, R"(
Read a remote array into a local one of the same shape and dtype (RDMA read). With notify the peer is notified
once the data has arrived here. Otherwise as write().)")
      .def("write_many", &many<0>, py::arg("pairs"), py::kw_only(), notify, stream, require,
           timeout,
           R"(
Write many arrays as one Transfer, with one doorbell for up to 32 work requests.

pairs: list, generator, ... of (Memory or array, RemoteMemory). Otherwise as write(); the notification follows the last.)")
      .def("read_many", &many<1>, py::arg("pairs"), py::kw_only(), notify, stream, require, timeout,
           "Read many arrays as one Transfer. pairs: as for write_many, but (RemoteMemory, Memory "
           "or array).")
      .def("write_pages", &write_pages, py::arg("source"), py::arg("destination"),
           py::arg("source_pages"), py::arg("destination_pages"), py::kw_only(), notify, stream,
           require, timeout, R"(
Write many parts of a local array, along its first axis, to parts of a remote one, as one Transfer:
source[source_pages[k]] to destination[destination_pages[k]] for every k. This moves the blocks of a paged KV
cache without an object for each; of the calls for many blocks it is the fastest.

source: Memory, or an array. destination: RemoteMemory. A page, array[i], has the same shape and dtype in both;
it may be strided. source_pages, destination_pages: equally many indices, from 0; negative ones do not count
from the end. Each is an array of int32, int64, uint32 or uint64 with one axis in host memory (buffer protocol
or DLPack), any sequence of ints, or None for all pages in order. They are copied: later changes have no
effect. Destination pages must not repeat: which of the pages written to one remains is undefined, and this is
not checked. Otherwise as write(); the notification follows the last page.

Raises IndexError (an index, with its position and the bound), ValueError (page shapes or numbers of indices
that differ; indices with several axes), TypeError (indices of another type, or in GPU memory: pass .cpu()),
and what write() raises.)")
      .def("read_pages", &read_pages, py::arg("source"), py::arg("destination"),
           py::arg("source_pages"), py::arg("destination_pages"), py::kw_only(), notify, stream,
           require, timeout, R"(
Read many parts of a remote array, along its first axis, into parts of a local one, as one Transfer:
source[source_pages[k]] into destination[destination_pages[k]] for every k. Indices as for write_pages(),
otherwise as read().)")
      .def(
          "fetch_add",
          [](const PeerHandle& self, Remote remote, Shown<std::uint64_t> value) {
            const RemoteMemory& word = demand_remote(remote.object, "remote");
            const std::uint64_t add = demand_word(value.object, "the summand");
            return handle_of(self, {"fetch_add", "at"},
                             without_gil([&] { return self.peer->fetch_add(word, add); }),
                             word_kind(word));
          },
          py::arg("remote"), py::arg("value"), R"(
Add to one remote 8-byte element (int64 or uint64, aligned to 8); wait() returns the old value. Atomic with all
other operations of the peer's device, but not with kernels that access an element on a GPU meanwhile. Overflow
wraps.)")
      .def(
          "compare_swap",
          [](const PeerHandle& self, Remote remote, Shown<std::uint64_t> expected,
             Shown<std::uint64_t> desired) {
            const RemoteMemory& word = demand_remote(remote.object, "remote");
            const std::uint64_t old_value = demand_word(expected.object, "the expected value");
            const std::uint64_t new_value = demand_word(desired.object, "the desired value");
            return handle_of(self, {"compare_swap", "at"}, without_gil([&] {
                               return self.peer->compare_swap(word, old_value, new_value);
                             }),
                             word_kind(word));
          },
          py::arg("remote"), py::arg("expected"), py::arg("desired"), R"(
Replace one remote 8-byte element by `desired` if it equals `expected`, atomic like fetch_add(); wait() returns
the old value, which shows whether it did.)")
      .def("notify", &notify_on, py::arg("slot"), py::arg("value"), py::kw_only(), stream, timeout,
           R"(
Put a value (1 to 2**32 - 1) into a slot (0 to 65535) of the peer's notification board, where wait_notify()
finds it. It becomes visible only after the data of all write() calls made earlier. When the Transfer is done
it is in flight, and becomes visible a moment later. A slot holds one value: a later one replaces one that was
not taken.
stream: as for write(): on one host the GPU of the stream puts the value when the stream gets there, behind the
stream's earlier work; otherwise the call waits for that, at most `timeout` seconds.

Raises IndexError (slot), ValueError (value), PeerLost; with stream= also RouteUnavailable, CudaError,
TransferTimeout.)");
}

namespace {

// context: of a group of ranks; 0: none.
TransferHandle send_one(const PeerHandle& self, py::handle array, py::handle tag,
                        engine::Context context) {
  const std::uint32_t number = demand_u32(tag, "a tag");
  const std::uint64_t whole = std::uint64_t{context} << 32 | number;
  const LocalArray local(*self.endpoint, array);
  return handle_of(self, {"send", "to", number},
                   without_gil([&] { return self.peer->send(*local, whole); }));
}

TransferHandle receive_one(const PeerHandle& self, py::handle array, py::handle tag,
                           engine::Context context) {
  const std::uint32_t number = demand_u32(tag, "a tag");
  const std::uint64_t whole = std::uint64_t{context} << 32 | number;
  const LocalArray local(*self.endpoint, array);
  return handle_of(self, {"recv", "from", number},
                   without_gil([&] { return self.peer->receive(*local, whole); }),
                   ResultKind::nbytes);
}

void bind_contexts(py::module_& m) {
  m.def(
      "send",
      [](const PeerHandle& peer, const py::object& array, Shown<std::uint64_t> tag,
         engine::Context context) { return send_one(peer, array, tag.object, context); },
      py::arg("peer"), py::arg("array"), py::arg("tag"), py::arg("context"),
      "Peer.send() within a group of ranks: only its recvs of that context take the message.");
  m.def(
      "recv",
      [](const PeerHandle& peer, const py::object& array, Shown<std::uint64_t> tag,
         engine::Context context) { return receive_one(peer, array, tag.object, context); },
      py::arg("peer"), py::arg("array"), py::arg("tag"), py::arg("context"),
      "Peer.recv() within a group of ranks.");
  m.def(
      "end_context",
      [](const PeerHandle& peer, engine::Context context) {
        without_gil([&] { peer.peer->end_context(context); });
      },
      py::arg("peer"), py::arg("context"), R"(
This process leaves a group of ranks: its recvs of that context that have no message yet fail, and so do sends of the
peer that no recv has taken, also later ones.)");
}

}  // namespace

void bind_messages(py::module_& m, PeerClass& type) {
  bind_contexts(m);
  type.def(
          "send",
          [](const PeerHandle& self, const py::object& array, Shown<std::uint64_t> tag) {
            return send_one(self, array, tag.object, 0);
          },
          py::arg("array"), py::arg("tag") = 0, R"(
Send an array (or Memory) to a matching recv of the peer, in order for each tag (0 to 2**32 - 1).

Up to 16384 bytes are copied, and done when they are in the peer's memory; larger arrays stay in place until
the peer's recv has read them. Bytes are matched, not shapes or dtypes.)")
      .def(
          "recv",
          [](const PeerHandle& self, const py::object& array, Shown<std::uint64_t> tag) {
            return receive_one(self, array, tag.object, 0);
          },
          py::arg("array"), py::arg("tag") = 0, R"(
Receive the next message of that tag into an array (or Memory); wait() returns its number of bytes.

A shorter message fills the beginning of a contiguous array. One that does not fit raises ValueError and stays
for another recv.)");
}

}  // namespace zerohop::bindings
