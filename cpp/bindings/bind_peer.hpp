// The Python class Peer, whose calls are bound in parts.
#pragma once

#include "bindings/handles.hpp"

namespace zerohop::bindings {

using PeerClass = py::class_<PeerHandle, std::shared_ptr<PeerHandle>>;

void bind_transfers(PeerClass& type);  // write, read, atomics, notify
void bind_messages(PeerClass& type);   // send, recv
void bind_stats(PeerClass& type);

}  // namespace zerohop::bindings
