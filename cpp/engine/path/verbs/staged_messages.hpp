// What a queue pair hands to the staged path: messages about memory that its adapter does not
// reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/path/message.hpp"
#include "engine/path/verbs/matcher.hpp"
#include "engine/rail.hpp"

namespace zerohop::engine {

struct StagedMessage {
  RailIndex rail = 0;
  std::uint32_t epoch = 0;  // of the path that it came by
  Message message{};
  std::vector<std::byte> payload;
};

class StagedMessages {
 public:
  virtual ~StagedMessages() = default;
  // Puts an array that came with the message, or is to be had from the peer, into `into`.
  virtual void deliver(const PostedReceive& receive, const Layout& into,
                       const StagedMessage& came) = 0;
  // Does what the peer asks for (pull or push). Throws ProtocolError. The lock of the group is
  // held.
  virtual void serve(StagedMessage asked) = 0;
};

}  // namespace zerohop::engine
