// A Peer as a process of this host, whose memory this one copies from and to by itself: the p2p
// route for host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "engine/message.hpp"
#include "engine/path_stats.hpp"
#include "engine/remote_memory.hpp"
#include "engine/route.hpp"
#include "engine/transfer.hpp"
#include "ipc/visit.hpp"

namespace zerohop::engine {

// What one transfer copies. `a` of each piece is local, `b` the Peer's.
struct NeighbourCopy {
  struct Piece {
    Layout local;
    Layout remote;
    std::shared_ptr<const ipc::Window> window;
    std::shared_ptr<const void> owner;  // keeps the local memory alive
  };
  std::shared_ptr<Transfer> transfer;
  std::shared_ptr<ipc::Visit> visit;
  ipc::Direction direction{};
  std::vector<Piece> pieces;
  std::optional<Message> message;  // a notification, to follow
};

class Neighbour {
 public:
  // doorway: as the Peer told it; nothing happens before the first reach().
  Neighbour(std::string doorway, const ipc::Token& token)
      : doorway_(std::move(doorway)), token_(token) {}

  // What is reached: with a window, or with the reason why there is none.
  struct Reached {
    std::shared_ptr<ipc::Visit> visit;
    std::shared_ptr<const ipc::Window> window;
    std::string reason;
  };
  // Asks the other process the first time, which takes as long as its progress thread does, at most
  // a second.
  Reached reach(const RemoteMemory& remote);

  // The board alone; null with the reason.
  Reached reach_board();
  static void notify(const ipc::Visit& visit, std::uint32_t slot, std::uint32_t value) noexcept;

  static const std::shared_ptr<const Route>& route(const ipc::Window* window);
  PathStats& stats() noexcept { return stats_; }

  // Lets go of everything that is mapped, and never comes back.
  void leave();

 private:
  std::shared_ptr<ipc::Visit> visit(std::string& reason);

  const std::string doorway_;
  const ipc::Token token_;
  PathStats stats_;
  std::mutex mutex_;  // guards the next two
  std::shared_ptr<ipc::Visit> visit_;
  std::string no_visit_;  // why there never will be one
};

}  // namespace zerohop::engine
