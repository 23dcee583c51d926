// Two endpoints of one process on soft0, connected.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/core/endpoint.hpp"
#include "eventually.hpp"
#include "reported.hpp"

namespace zerohop::testing {

using engine::Memory;
using engine::Notification;
using engine::Peer;
using engine::RemoteMemory;
using engine::TransferPtr;

inline const DType kByte{.code = kDTypeUInt, .bits = 8, .lanes = 1};

inline engine::EndpointOptions options(const char* name) {
  engine::EndpointOptions chosen;
  chosen.p2p = false;  // most tests are about queue pairs
  chosen.device = "soft0";
  chosen.name = name;
  chosen.timeout = kTimeout;
  return chosen;
}
inline engine::EndpointOptions near(const char* name) {
  engine::EndpointOptions chosen = options(name);
  chosen.p2p = true;
  return chosen;
}

inline Memory host_array(engine::Endpoint& endpoint, const std::vector<std::int64_t>& shape) {
  return endpoint.empty(shape, kByte);
}

struct Couple {
  engine::Endpoint left{options("left")};
  engine::Endpoint right{options("right")};
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());

  // One of the left endpoint and one of the right.
  std::pair<Memory, Memory> host_arrays(const std::vector<std::int64_t>& shape) {
    return {host_array(left, shape), host_array(right, shape)};
  }
};

inline TransferPtr write(Peer& peer, const Memory& from, const RemoteMemory& to,
                         const engine::TransferOptions& options) {
  const Peer::Pair pair{&from, &to};
  return peer.write({&pair, 1}, options);
}
inline TransferPtr write(Peer& peer, const Memory& from, const RemoteMemory& to,
                         std::optional<Notification> notify = {}) {
  return write(peer, from, to, {.notify = notify, .require = {}, .timeout = {}});
}
inline TransferPtr read(Peer& peer, const Memory& into, const RemoteMemory& from,
                        const engine::TransferOptions& options = {}) {
  const Peer::Pair pair{&into, &from};
  return peer.read({&pair, 1}, options);
}

// By that route alone.
inline engine::TransferOptions by(const char* route, std::optional<Notification> notify = {},
                                  std::optional<double> timeout = {},
                                  std::optional<driver::CudaStream> stream = {}) {
  return {.notify = notify, .require = route, .timeout = timeout, .stream = stream};
}

inline void finish(const TransferPtr& transfer) {
  REQUIRE(transfer->wait(soon()));
  (void)transfer->result();
}
template <typename Failure>
Failure failure_of(const TransferPtr& transfer) {
  REQUIRE(transfer->wait(soon()));
  return thrown_by<Failure>([&] { (void)transfer->result(); });
}
inline std::string error_of(const TransferPtr& transfer) {
  REQUIRE(transfer->wait(soon()));
  return message_of<Error>([&] { (void)transfer->result(); });
}

}  // namespace zerohop::testing
