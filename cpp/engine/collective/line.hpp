// A line: messages between this rank and another one, in order in both directions.
//
// Each side has an inbox that the other one fills (inbox_layout.hpp); a notification carries the
// number of messages so far. The next message back carries the number consumed; if there is none
// for a while, a notification does. Such a count covers all messages up to it, also one whose own
// notification was withheld because its bytes did not arrive: so no count is sent after a failure.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/collective/inbox_layout.hpp"
#include "engine/collective/message.hpp"
#include "engine/memory/memory.hpp"
#include "engine/memory/remote_memory.hpp"
#include "engine/peer/peer.hpp"
#include "engine/wait/transfer.hpp"

namespace zerohop::engine::collective {

struct Move;

// The moves that wait for the other rank's answer, oldest first.
class Expected {
 public:
  void add(Move* move) { moves_.push_back(move); }
  bool empty() const noexcept { return next_ == moves_.size(); }
  Move& first() const noexcept { return *moves_[next_]; }
  // Small blocks overtake large ones of the same exchange. Makes the oldest move of that label the
  // first; false: there is none.
  bool bring(const Label& label) noexcept;
  void pop() noexcept { ++next_; }
  void clear() noexcept {
    moves_.clear();
    next_ = 0;
  }
  std::span<Move* const> all() const noexcept { return std::span(moves_).subspan(next_); }

 private:
  std::vector<Move*> moves_;
  std::size_t next_ = 0;
};

class Line {
 public:
  // Set in a slot beside the count: that rank will call no more collectives.
  static constexpr std::uint32_t kOver = std::uint32_t{1} << 31;

  // Where this rank writes on the other rank's board.
  struct Slots {
    std::uint32_t messages = 0;
    std::uint32_t credits = 0;
  };
  Line(Rank rank, std::shared_ptr<Peer> peer, Memory inbox, const Slots& slots);

  Rank rank() const noexcept { return rank_; }
  const Memory& inbox() const noexcept { return inbox_; }
  // checked: the two ends compare the data (integrity=1). near: they copy from and to each other.
  void meet(RemoteMemory inbox, bool checked, bool near);
  bool met() const noexcept { return message_there_.has_value(); }
  bool checked() const noexcept { return checked_; }
  bool near() const noexcept { return near_; }

  // --- values from the slots ---
  void heard(std::uint32_t value) noexcept;     // of the other side's messages
  void has_room(std::uint32_t value) noexcept;  // of this side's, consumed over there
  bool is_over() const noexcept { return over_; }
  bool fits(std::size_t length) const noexcept { return room_.fits(length); }
  // Of the other side's messages, modulo 2^16: sent with the next message to it.
  std::uint16_t taken_count() const noexcept { return static_cast<std::uint16_t>(taken_); }

  // --- messages ---
  bool has_news() const noexcept { return taken_ < arrived_; }  // unconsumed messages
  // Sends a message within this call. False: not possible, and nothing has happened: use send().
  // Requires that the lines have met and the message fits. Throws what Peer::put throws.
  bool put(const Header& header, std::span<const std::byte> payload);
  // `from`: the message, in registered memory. Requires that the lines have met and the message
  // fits. Null: it has arrived. Throws what Peer::write throws.
  std::shared_ptr<Transfer> send(const Memory& from, const Deadline& deadline);
  // Posts the write; the next message follows it.
  void write(const Memory& block, const RemoteMemory& there, const Deadline& deadline);
  // Takes the next wanted message (one bit per What); of_all: any, as for a collective of all
  // ranks, which requires that everything of send_recv was received before. An unwanted message of
  // send_recv is kept for later. Call emptied() afterwards. Throws ProtocolError.
  std::optional<Message> take(unsigned wanted, bool of_all);
  void emptied(const Message& message);
  // Notifies the other side of what has been consumed, unless it knows.
  void report();
  std::vector<Label> untaken() const;  // of messages not yet consumed

  // --- posted transfers ---
  // Throws the error that ended an earlier transfer. Never blocks.
  void look();
  bool has_posted() const noexcept { return !posted_.empty(); }  // not known to have succeeded
  // The oldest transfer not known to have succeeded; null: none, or not a block.
  std::shared_ptr<Transfer> oldest() const;
  std::shared_ptr<Transfer> oldest_before_blocks_end() const;

  // Notifies the other side that no more messages follow those already there. While a transfer that
  // may fail is in progress it sends nothing: the other side then asks.
  void ring_off(const Deadline& deadline);

  // Of the current Exchange:
  Expected incoming, outgoing;
  bool expects() const noexcept { return !incoming.empty() || !outgoing.empty(); }
  bool proposes = false;  // the other rank; see Header

 private:
  struct Posted {
    std::shared_ptr<Transfer> transfer;
    std::uint64_t messages;  // messages there once this and all earlier transfers have succeeded
    bool is_block;
  };
  void post(std::shared_ptr<Transfer> transfer, bool is_block);
  void count_sent(std::size_t length);
  std::span<const std::byte> at(std::size_t offset) const noexcept;
  void count_taken(std::size_t length);
  void count_free(std::uint64_t more) noexcept;

  const Rank rank_;
  const std::shared_ptr<Peer> peer_;
  const Slots slots_;
  const Memory inbox_;
  const std::shared_ptr<const Registration>
      registration_;                           // keeps the bytes when the Endpoint is closed
  std::optional<RemoteMemory> message_there_;  // the last one, in the other rank's inbox
  std::uint64_t inbox_there_ = 0;              // its address
  bool checked_ = false;
  bool near_ = false;
  bool over_ = false;
  // Message counts. sent_: to the other side; free_: of those, consumed there; good_: of those,
  // known to have arrived. arrived_: from the other side; taken_: of those, consumed here; told_:
  // of those, reported to it.
  std::uint64_t sent_ = 0, free_ = 0, arrived_ = 0, taken_ = 0, reported_ = 0, good_ = 0;
  Room room_;  // in the other rank's inbox
  // In the own inbox: where the next message will arrive, and which one is consumed next.
  Position arriving_, taking_;
  std::size_t unreported_bytes_ = 0;  // consumed, not reported
  std::deque<Posted> posted_;
  std::deque<Message> early_;  // of send_recv, for a later call
};

}  // namespace zerohop::engine::collective
