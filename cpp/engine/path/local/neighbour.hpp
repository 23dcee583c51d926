// A Peer on this host, whose host memory this process copies from and to directly.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/locks.hpp"
#include "engine/memory/remote_memory.hpp"
#include "engine/path/message.hpp"
#include "engine/path/transfer_options.hpp"
#include "engine/stats/route.hpp"
#include "engine/wait/transfer.hpp"
#include "shm/local_session.hpp"

namespace zerohop::engine {

// The work after a transfer's copies are placed.
struct NeighbourEnd {
  std::shared_ptr<Transfer> transfer;
  std::shared_ptr<shm::LocalSession> session;
  std::optional<Message> message;  // a notification
  bool put_by_gpu = false;         // put by the time the copies are seen to be done
  Room room = Room::wait;          // if a device must carry it
};

// The pieces that one transfer copies. `a` of each piece is local, `b` the Peer's.
struct NeighbourCopy : NeighbourEnd {
  struct Piece {
    Layout local;
    Layout remote;
    std::shared_ptr<const shm::RemoteMapping> mapping;
    std::shared_ptr<const void> owner;  // keeps the local memory alive
    std::vector<Run> runs{};            // pages of both; empty: all of them
  };
  shm::Direction direction{};
  std::vector<Piece> pieces;
  std::uint64_t nbytes = 0;  // of all pieces

  // Progress of a copy made in steps.
  struct Progress {
    bool begun = false;
    std::size_t piece = 0;
    std::optional<shm::Cursor> cursor{};  // in that piece
    std::uint64_t nbytes = 0;
    std::optional<Deadline> until{};  // while it is blocked
  };
  Progress progress{};
};

class Neighbour {
 public:
  // local_server: its name, as sent by the Peer. Connects only with the first reach().
  Neighbour(std::string local_server, const shm::Token& token,
            const std::shared_ptr<RouteBook>& book);

  // A result: a mapping, or the reason why there is none.
  struct Reached {
    std::shared_ptr<shm::LocalSession> session;
    std::shared_ptr<const shm::RemoteMapping> mapping;
    std::string reason;
  };
  // How long the other process may take to answer a request: at most a second, and no time after it
  // once took longer, unless the caller insists.
  struct Patience {
    double seconds;
    bool insists;
  };
  // Holds no lock while it waits. Retries a failure later: after 0.1 s, doubled up to 10 s.
  Reached reach(const RemoteMemory& remote, const Patience& patience);
  // Host memory that was reached before.
  struct Way {
    std::shared_ptr<shm::LocalSession> session;
    std::shared_ptr<const shm::RemoteMapping> mapping;
  };
  std::shared_ptr<const Way> known(std::uint64_t local_key) const;  // null: call reach()
  // The board only.
  Reached reach_board(const Patience& patience);
  std::shared_ptr<shm::LocalSession> known_board() const;  // null: call reach_board()

  // Wakes sleepers for a note that a GPU has put there.
  static void announce(std::byte* board, const shm::LocalSession& session) noexcept;
  static void notify(std::byte* board, const shm::LocalSession& session,
                     const Message& message) noexcept;

  // For host memory. Null: for a notification alone.
  const std::shared_ptr<const Route>& route(const shm::RemoteMapping* mapping) const noexcept;
  // Call it periodically. Returns how many mappings it looked at: only those closed since.
  std::size_t sweep();
  // The deadline of a request to the other process. The next two handle a failed one: each sets the
  // reason.
  Deadline until(const Patience& patience) const;
  void no_answer(Reached& reached, const Error& error);  // the answer may still come
  void ended(Reached& reached, const Error& error);      // the session is over
  // How often the other process did not answer in time.
  std::uint64_t unanswered() const noexcept { return unanswered_.load(); }

  // Unmaps everything, ends copies under way, and does not reconnect. Does not block.
  void end() noexcept;

 private:
  using Clock = Deadline::Clock;

  using Ways = std::unordered_map<std::uint64_t, std::shared_ptr<const Way>>;

  void remember(std::uint64_t local_key, const Reached& reached);
  // With mutex_ held, in a session that was entered.
  std::size_t forget_closed(std::vector<Ways::node_type>& closed);
  bool session(Reached& reached);
  void enter(Reached& reached, const Patience& patience);
  void open(Reached& reached, const RemoteMemory& remote, const Patience& patience);
  void postpone(const std::string& reason);  // with mutex_ held

  const std::string local_server_;
  const shm::Token token_;
  const std::shared_ptr<const Route> pages_;
  const std::shared_ptr<const Route> process_;
  const std::shared_ptr<const Route> board_;
  std::atomic<std::uint64_t> unanswered_{0};
  std::atomic<bool> silent_{false};  // the last request was not answered

  mutable Mutex<Rank::neighbour> mutex_;  // guards all below
  std::shared_ptr<shm::LocalSession> session_;
  // By key, of the present session. One owner and one lock cover both session and mapping, because
  // a copy of a few bytes takes no longer than each of them.
  Ways ways_;
  std::uint64_t struck_seen_ = 0;
  bool entered_ = false;
  bool left_ = false;
  std::string no_session_;      // why there is none
  Clock::time_point try_at_{};  // earliest time of the next try
  Clock::duration pause_{};     // before the next try but one
};

}  // namespace zerohop::engine
