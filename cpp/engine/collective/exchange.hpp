// The building block of collectives: sends blocks to some ranks while receiving from others.
//
// A small block is sent with its header (data). For a large one the receiver sends its address at
// once (ready); the sender writes the block there and notifies (done). The same goes for a block on
// a GPU, however small; since the receiver cannot know, it is announced first (announce). A sender
// that waits for long announces a large block, too: a receiver that made another call, and expects
// no large block, then notices.
//
// Between ranks that copy from and to each other, a receiver in host memory may send no address:
// then it gets a large block in slices, each with a header. They are copied twice, but the inbox
// stays in the caches, both ranks copy at the same time, and no array is registered. A sender whose
// block is on a GPU asks for the address (ask).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/collective/block_writes.hpp"
#include "engine/collective/lines.hpp"
#include "engine/collective/message_queue.hpp"
#include "engine/collective/own_copies.hpp"
#include "engine/collective/partners.hpp"
#include "engine/collective/run_limits.hpp"
#include "engine/collective/sender.hpp"
#include "engine/collective/sliced_sends.hpp"
#include "engine/collective/staying_blocks.hpp"
#include "engine/collective/steps.hpp"

namespace zerohop::engine::collective {

// Handles one call at a time, in one thread at a time, and only one Exchange uses the Lines at a
// time.
class Exchange {
 public:
  // proposes: see Header.
  explicit Exchange(std::shared_ptr<Lines> lines, bool proposes = false)
      : lines_(std::move(lines)), proposes_(proposes), sender_(lines_) {}
  ~Exchange() { end(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Starts another call, which has its room. of_all: a call of all ranks. Then a rank that has hung
  // up ends it, even if nothing was expected from that rank.
  void begin(std::shared_ptr<Schedule> schedule, const Labels& labels, bool of_all);
  // The same for a call of one step: takes the moves, and returns the vectors' old storage.
  void begin(std::vector<Move>& sends, std::vector<Move>& receives, bool of_all);
  void end() noexcept;

  enum class News {
    complete,      // everything has arrived, and sent memory may change
    quiet,         // nothing arrived in time, a rank has hung up, or a call of many steps or of
                   // large blocks takes longer
    full,          // that rank has not consumed anything in time
    unmet,         // the caller must look up that rank's inbox
    under_way,     // a transfer to that rank has not finished in time
    unregistered,  // the Memory of the move's array is missing
    other,         // that rank sent a message of another call
    length,        // ... of the same call, with another size
    payload,       // the caller must copy what arrived to memory that a CPU cannot access
    copy,          // the caller must make a copy to or from such memory, before it continues
  };
  struct Outcome {
    News news = News::complete;
    Rank rank = 0;
    const Move* move = nullptr;  // the move concerned
    Copy copy{};
    Label label{};  // of what arrived
    std::uint64_t nbytes = 0;
    std::vector<std::byte> payload{};
    std::shared_ptr<Transfer> transfer{};
  };
  // Continues. slice: how long to wait for each arrival; last: for all. Throws what a Transfer, or
  // posting one, throws: then culprit() is the rank concerned.
  Outcome run(Deadline::Seconds slice, const Deadline& last);
  std::optional<Rank> culprit() const noexcept { return sender_.culprit(); }

  const std::vector<Move>& receives() const noexcept { return receives_; }
  Array& array(std::size_t number) { return steps_.array(number); }
  std::uint64_t steps() const noexcept { return begun_; }            // that have been begun
  std::vector<Rank> missing() const { return partners_.missing(); }  // that have to send
  void look();      // a failed move never gets an answer: throws as run() does
  void announce();  // announces large blocks, once
  // Of the ranks that sent anything, those that propose a GpuGroup.
  std::vector<Rank> proposers() const;

 private:
  using Stop = std::optional<Outcome>;

  Stop begin_step();
  void begin_moves();
  Stop run_moves();
  Stop finish();

  void say(What what, Move& move) { queue_.add({&lines_->at(move.rank), what, &move}); }
  Stop say_next();
  bool comes_in_slices(const Line& line, const Move& move) const noexcept;

  Stop take_from(Line& line);
  Stop on(Line& line, Message& message);
  Stop slice_arrived(Line& line, Move& move, const Message& message);
  void store(Line& line, Move& move, const Message& message);

  bool has_work() const noexcept;
  Stop work();
  Stop write_next();

  Stop pause();
  bool await_room();
  bool hear();
  bool is_over() const noexcept;

  const std::shared_ptr<Lines> lines_;
  const bool proposes_;
  Steps steps_;
  bool in_step_ = false;  // the moves of the current one are on their way
  std::uint64_t begun_ = 0;
  std::vector<Move> sends_, receives_;  // in place
  bool of_all_ = false;
  Partners partners_;
  MessageQueue queue_;
  std::vector<Line*> to_take_;  // lines that may have messages
  StayingBlocks staying_;
  BlockWrites writes_;
  SlicedSends slices_;
  OwnCopies own_copies_;
  bool past_caches_ = false;  // how slices and own blocks are copied
  bool announced_ = false;
  Sender sender_;
  RunLimits limits_;
};

}  // namespace zerohop::engine::collective
