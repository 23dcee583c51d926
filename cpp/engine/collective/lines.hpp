// The lines of a rank to others, and what they share: the board slots where others report messages
// and room, and the registered memory from which messages are sent.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/deadline.hpp"
#include "engine/collective/line.hpp"
#include "engine/collective/stages.hpp"
#include "engine/core/endpoint.hpp"

namespace zerohop::engine::collective {

// Cells of registered memory, used in turn.
class Outbox {
 public:
  static constexpr std::size_t kCellCount = 16;

  explicit Outbox(Memory memory);

  // What may still be sent from a cell, and over which line.
  struct Use {
    std::shared_ptr<Transfer> transfer;
    Line* line;
  };
  using Uses = std::vector<Use>;
  const Uses& uses_of_next() const noexcept { return uses_[next_]; }
  // Puts a message into the next free cell, or reuses the last one if that has the same content, as
  // for one block to several ranks. The block must not change until forget(). The result is valid
  // until the next put().
  const Memory& put(const Header& header, std::span<const std::byte> payload);
  void use(Use use) { uses_[last_].push_back(std::move(use)); }
  void forget() noexcept { payload_ = {}; }

 private:
  bool has(const Header& header, std::span<const std::byte> payload) const noexcept;

  Memory message_;  // the last message, in the cells
  const std::uint64_t address_;
  const std::shared_ptr<const Registration>
      registration_;  // keeps the bytes when the Endpoint is closed
  std::array<Uses, kCellCount> uses_{};
  std::size_t next_ = 0, last_ = 0;
  Header header_{};                       // of the last message
  std::span<const std::byte> payload_{};  // its payload in the program's memory; empty: none
};

// Only the thread that has entered may use it.
class Lines {
 public:
  // Whether another thread is inside.
  class Entered {
   public:
    explicit Entered(Lines& lines) noexcept
        : lines_(lines), alone_(!lines.in_use_.test_and_set(std::memory_order_acquire)) {}
    ~Entered() {
      if (alone_) lines_.in_use_.clear(std::memory_order_release);
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    explicit operator bool() const noexcept { return alone_; }

   private:
    Lines& lines_;
    const bool alone_;
  };

  // On this rank's board, a range with one slot for every rank that writes there. Other ranks may
  // have it elsewhere.
  struct Slots {
    std::uint32_t messages = 0;
    std::uint32_t credits = 0;  // follow the messages directly
    std::uint32_t each = 0;
  };
  Lines(std::shared_ptr<Endpoint> endpoint, Rank rank, const Slots& slots);

  // inbox: of kInbox bytes. messages: the first of those slots on that rank's board.
  Line& add(Rank rank, std::shared_ptr<Peer> peer, Memory inbox, std::uint32_t messages);
  Line* find(Rank rank) const noexcept;  // null: none
  Line& at(Rank rank) const;             // throws std::out_of_range
  // Null: not known yet.
  const Topology* topology() const noexcept { return topology_ ? &*topology_ : nullptr; }
  void set_topology(Topology topology) { topology_.emplace(std::move(topology)); }
  // By rank; null: none.
  const std::vector<std::unique_ptr<Line>>& all() const noexcept { return lines_; }
  Outbox& outbox();

  // Takes the notifications that have arrived, or waits for the first one; false: none in time.
  // Adds the lines with new messages to `found`.
  bool listen(const Deadline& deadline, std::vector<Line*>& found);
  // The same without a wait.
  void peek(std::vector<Line*>& found);
  // Lines that have hung up, and are not known to.
  const std::vector<Line*>& over() const noexcept { return over_; }
  void know_over(Rank rank) noexcept { std::erase(over_, find(rank)); }

 private:
  Line* hear(const Endpoint::Notified& note);

  const std::shared_ptr<Endpoint> endpoint_;
  const Rank rank_;
  const Slots slots_;
  std::atomic_flag in_use_;
  std::vector<std::unique_ptr<Line>> lines_;
  std::optional<Topology> topology_;
  std::vector<Line*> over_;
  std::vector<Endpoint::Notified> taken_;  // filled by listen(); a member to keep its capacity
  std::unique_ptr<Outbox> outbox_;         // created when first needed
};

}  // namespace zerohop::engine::collective
