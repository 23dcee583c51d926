// The Python class Peer, bound in parts.
#pragma once

#include "bindings/demands.hpp"
#include "bindings/handles.hpp"

namespace zerohop::bindings {

using PeerClass = py::class_<PeerHandle, std::shared_ptr<PeerHandle>>;

// The arguments that all transfer calls share; kept alive by their caller.
struct Extras {
  py::handle notify = Py_None;
  py::handle stream = Py_None;
  Shown<std::optional<std::string>> require{Py_None};
  Timeout timeout{};

  engine::TransferOptions options() const;
};

// Peer.write, Peer.read and Peer.notify.
TransferHandle write_one(const PeerHandle& self, py::handle source, py::handle destination,
                         const Extras& extras);
TransferHandle read_one(const PeerHandle& self, py::handle source, py::handle destination,
                        const Extras& extras);
TransferHandle notify_one(const PeerHandle& self, py::handle slot, py::handle value);

void bind_transfers(PeerClass& type);                 // write, read, atomics, notify
void bind_messages(py::module_& m, PeerClass& type);  // send, recv
void bind_stats(PeerClass& type);

}  // namespace zerohop::bindings
