// The state of one control connection, from the first byte to the last.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/channel/channel.hpp"
#include "engine/channel/control_message.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::engine {

// How far one rail of a connection is with the repair of its queue pair.
struct LinkRail {
  using Clock = std::chrono::steady_clock;

  std::uint32_t generation = 0;                 // of this end's queue pair: counts the repairs
  std::uint32_t peer_generation = 0;            // of the peer's
  bool repair_wanted = false;                   // it broke before both sides were ready
  bool renewing = false;                        // the drivers' thread makes a fresh queue pair
  std::optional<Requeue> requeue;               // the peer's fresh queue pair, waiting for ours
  Clock::time_point requeued{};                 // ... since when
  std::optional<Clock::time_point> repair_at;   // when to try again
  std::optional<Clock::time_point> connecting;  // since when a connection manager connects it
  std::optional<Clock::time_point> broke;       // while what was cut off then is undecided
};

struct Link : std::enable_shared_from_this<Link> {
  using Clock = std::chrono::steady_clock;

  std::unique_ptr<Channel> channel;
  std::shared_ptr<Peer> peer;      // by Links::meet(); null on the accepting side until its Hello
  std::optional<Address> dialled;  // on the side that connected
  bool greeted = false;            // the peer's Hello has come
  bool established = false;        // both sides can post
  bool parts = false;              // one of the two leaves, as it means to
  bool watches_output = false;
  Clock::time_point opened = Clock::now();
  Clock::time_point heard = Clock::now();  // last sign of life from the peer
  Clock::time_point spoke = Clock::now();  // last sign of life to the peer
  std::uint64_t heartbeats = 0;
  std::vector<LinkRail> rails;  // those of this end
  // For kernels of the peer, by its request; null while they are being made.
  std::map<std::uint64_t, std::shared_ptr<const DirectTarget>> direct_targets;
};

}  // namespace zerohop::engine
