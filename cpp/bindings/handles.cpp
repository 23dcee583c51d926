#include "bindings/handles.hpp"

#include <cstdio>
#include <string>

#include "bindings/demands.hpp"
#include "bindings/instance.hpp"

namespace zerohop::bindings {

const engine::Memory* find_memory(py::handle object) {
  return find_instance<engine::Memory>(object);
}

LocalArray::LocalArray(engine::Endpoint& endpoint, py::handle object)
    : found_(find_memory(object)) {
  if (found_ == nullptr) {
    if (find_remote(object) != nullptr) {
      throw py::type_error(
          "a Memory or an array of this process is needed here, not a RemoteMemory: write() takes "
          "(local, remote), read() takes (remote, local)");
    }
    registered_ = register_array(endpoint, object, std::nullopt, /*cache=*/true);
  }
}

std::shared_ptr<PeerHandle> face_of(const EndpointHandle& endpoint,
                                    const std::shared_ptr<engine::Peer>& peer) {
  auto face = std::static_pointer_cast<PeerHandle>(peer->face.lock());
  if (!face) {
    face = std::make_shared<PeerHandle>(PeerHandle{endpoint, peer});
    peer->face = face;
  }
  return face;
}

std::string waited(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, " (waited %.3g s)", seconds);
  return text;
}

}  // namespace zerohop::bindings
