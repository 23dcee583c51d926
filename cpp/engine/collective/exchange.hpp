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

#include "engine/collective/lines.hpp"
#include "engine/collective/schedule.hpp"

namespace zerohop::engine::collective {

// What the messages of a call have in common; for send_recv the numbers may differ.
struct Labels {
  Label send, receive;
};

// Handles one call at a time, in one thread at a time, and only one Exchange uses the Lines at a
// time.
class Exchange {
 public:
  // proposes: see Header.
  explicit Exchange(std::shared_ptr<Lines> lines, bool proposes = false)
      : lines_(std::move(lines)), proposes_(proposes) {}
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
  std::optional<Rank> culprit() const noexcept { return culprit_; }

  const std::vector<Move>& receives() const noexcept { return receives_; }
  Array& array(std::size_t number) { return schedule_->array(number); }
  std::uint64_t steps() const noexcept { return steps_; }  // that have been begun
  std::vector<Rank> missing() const;                       // ranks that still have to send
  void look();      // a failed move never gets an answer: throws as run() does
  void announce();  // announces large blocks, once
  // Of the ranks that sent anything, those that propose a GpuGroup.
  std::vector<Rank> proposers() const;

 private:
  struct Saying {
    Line* line;
    What what;
    const Move* move;
  };
  using Stop = std::optional<Outcome>;

  Stop run_moves();
  Stop begin_step();
  void begin_moves();
  bool provide(Move& move) const;
  Move& own_receive(const Move& move) noexcept { return receives_[&move - receives_.data()]; }
  Move& own_send(const Move& move) noexcept { return sends_[&move - sends_.data()]; }
  void add_partners(const std::vector<Move>& moves);
  static bool fits(const Saying& saying) noexcept;
  Deadline until() const;
  void say(What what, const Move& move);
  Stop say_next();
  Stop send(Line& line, const Header& header, std::span<const std::byte> payload);
  Stop await(Line& line, const std::shared_ptr<Transfer>& transfer);
  Stop take_from(Line& line);
  Stop on(Line& line, Message& message);
  bool await_room();
  void leave_inboxes();
  // --- large blocks, bit by bit (exchange_work.cpp) ---
  bool comes_in_slices(const Line& line, const Move& move) const noexcept;
  void send_in_slices(const Move& move);
  void slice_sent(Line& line, Move& move);
  Stop slice_arrived(Line& line, Move& move, const Message& message);
  Stop pause();
  bool is_beyond_caches() const noexcept;
  void copy_slice(std::byte* to, const std::byte* from, std::uint64_t nbytes) noexcept;
  bool has_work() const noexcept;
  Stop work();
  void say_slices();
  Stop write_next();
  void copy_next(std::uint64_t most) noexcept;
  void store(Line& line, const Move& move, const Message& message);
  bool hear();
  bool is_over() const noexcept;
  Stop finish();

  const std::shared_ptr<Lines> lines_;
  const bool proposes_;
  std::shared_ptr<Schedule> schedule_;
  Labels labels_;
  Step step_;               // the next one
  bool in_step_ = false;    // its moves are on their way
  std::size_t copied_ = 0;  // of its copies
  std::uint64_t steps_ = 0;
  std::vector<Move> sends_, receives_;  // in place
  bool of_all_ = false;
  std::vector<Line*> partners_;
  std::vector<Saying> to_say_;
  std::size_t said_ = 0;        // number of to_say_ already sent
  std::vector<Line*> to_take_;  // lines that may have messages
  std::vector<std::pair<Line*, Message>> staying_;
  struct Writing {
    Line* line;
    const Move* move;
    RemoteMemory there;
    std::uint64_t written = 0;  // bytes
  };
  std::vector<Writing> to_write_;
  std::vector<const Move*> sliced_;  // sends that go in slices
  std::size_t meanwhile_ = 0;        // number of the step's copies meanwhile that have been made,
  std::uint64_t copied_bytes_ = 0;   // and bytes of the next one
  bool beyond_caches_ = false;       // slices are copied past them
  std::optional<Deadline> pause_;    // of run(), once a part of a large block has gone
  std::size_t missing_ = 0;          // messages
  bool announced_ = false;
  std::optional<Rank> culprit_;
  Deadline::Seconds slice_{0};
  Deadline last_ = Deadline::after(Deadline::Seconds{0});
};

}  // namespace zerohop::engine::collective
