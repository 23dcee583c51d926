// The state of one control connection, from the first byte to the last.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/channel.hpp"
#include "engine/control_message.hpp"
#include "engine/peer.hpp"

namespace zerohop::engine {

struct Link {
  using Clock = std::chrono::steady_clock;

  std::unique_ptr<Channel> channel;
  std::shared_ptr<Peer> peer;      // null on the accepting side until its Hello
  std::optional<Address> dialled;  // on the side that connected
  bool established = false;        // both sides can post
  bool watches_output = false;
  bool repair_wanted = false;  // its queue pair broke before both sides were ready
  Clock::time_point opened = Clock::now();
  Clock::time_point heard = Clock::now();  // last sign of life from the peer
  Clock::time_point spoke = Clock::now();  // last sign of life to the peer
  std::uint64_t heartbeats = 0;
  std::optional<Requeue> requeue;  // the peer's fresh queue pair, waiting for ours
  Clock::time_point requeued{};    // ... since when
  std::vector<std::pair<std::uint64_t, std::string>> lookups;  // of names not shared yet
};

}  // namespace zerohop::engine
