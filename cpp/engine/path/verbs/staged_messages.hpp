// Messages that a queue pair passes to the staged path: those about memory that its adapter does
// not reach.
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
  std::uint32_t epoch = 0;  // of the path it arrived on
  Message message{};
  std::vector<std::byte> payload;
};

class StagedMessages {
 public:
  virtual ~StagedMessages() = default;
  // Puts an array into `into`: from the message, or requested from the peer.
  virtual void deliver(const PostedReceive& receive, const Layout& into,
                       const StagedMessage& came) = 0;
  // Executes a request of the peer (pull or push). Throws ProtocolError. The lock of the group is
  // held.
  virtual void serve(StagedMessage asked) = 0;
};

}  // namespace zerohop::engine
