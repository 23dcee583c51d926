// The Lines of one of two ranks, which are endpoints of this process.
#pragma once

#include <memory>

#include "couple.hpp"
#include "engine/collective/lines.hpp"

namespace zerohop::testing {

constexpr std::uint32_t kMessages = 200;

// rank: 0 or 1. peer: the other one. The endpoint must outlive them.
inline std::shared_ptr<engine::collective::Lines> lines_of(
    engine::Endpoint& endpoint, engine::collective::Rank rank,
    const std::shared_ptr<engine::Peer>& peer) {
  using engine::collective::Lines;
  auto lines = std::make_shared<Lines>(
      std::shared_ptr<engine::Endpoint>(std::shared_ptr<void>(), &endpoint), rank,
      Lines::Slots{.messages = kMessages, .credits = kMessages + 2, .each = 2});
  lines->add(1 - rank, peer, host_array(endpoint, {engine::collective::kInbox}), kMessages);
  return lines;
}

}  // namespace zerohop::testing
