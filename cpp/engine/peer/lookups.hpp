// Finds memory that a peer shares, by its name.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.hpp"
#include "engine/channel/control_message.hpp"
#include "engine/path/peer_state.hpp"
#include "engine/peer/inquiry.hpp"
#include "engine/wait/poller.hpp"

namespace zerohop::engine {

// Any thread.
class Lookups : public std::enable_shared_from_this<Lookups> {
 public:
  Lookups(std::shared_ptr<const PeerState> state, std::shared_ptr<Poller> poller,
          std::function<void(ControlMessage)> tell)
      : state_(std::move(state)), poller_(std::move(poller)), tell_(std::move(tell)) {}

  // Waits until `deadline` for the memory to be published, or returns nullopt at once if `now`.
  // Throws TransferTimeout, PeerLost, std::invalid_argument (the name).
  std::optional<RemoteMemory> find(const std::string& name, const Deadline& deadline, bool now);
  // The same for an event loop, without blocking a thread.
  std::shared_ptr<Inquiry> ask(const std::string& name, bool now);
  std::size_t unanswered() const { return questions_.size(); }  // with a waiting caller

  // --- for the progress thread ---
  void on_found(std::uint64_t request, std::optional<RemoteMemory> memory);
  void end();  // the peer is lost

 private:
  friend class Inquiry;

  const std::shared_ptr<const PeerState> state_;
  const std::shared_ptr<Poller> poller_;
  const std::function<void(ControlMessage)> tell_;
  Questions<Inquiry::Answer> questions_;
};

}  // namespace zerohop::engine
