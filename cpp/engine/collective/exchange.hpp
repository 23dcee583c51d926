// What collectives are made of: blocks that go to some ranks while others come from some.
//
// A small block goes along with its header (data). Of a large one the receiver says at once where
// it belongs (ready), and the sender writes it there and says so (done). So does the sender of a
// block on a GPU, however small; the receiver cannot know and is told before (announce). A sender
// who waits for long announces a large block, too: a receiver who has made another call, and does
// not know of any large one, finds that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/collective/lines.hpp"

namespace zerohop::engine::collective {

// A block to a rank, or from it.
struct Move {
  Rank rank = 0;
  std::byte* bytes = nullptr;  // null: a CPU does not reach it
  std::uint64_t nbytes = 0;
  std::shared_ptr<const Memory> memory{};  // of one that is written, or to be written
  Label label;

  bool small() const noexcept { return nbytes <= kEager; }
  bool eager() const noexcept { return nbytes == 0 || (small() && bytes != nullptr); }
};

// Of one call at a time. One thread at a time, and one Exchange at a time over the same Lines.
class Exchange {
 public:
  explicit Exchange(std::shared_ptr<Lines> lines) : lines_(std::move(lines)) {}
  ~Exchange() { forget(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Another call, which takes the moves, and gives the room for them back. of_all: it is
  // everybody's. Then a rank that has rung off ends it, although it may not be one from which
  // something is to come.
  void begin(std::vector<Move>& sends, std::vector<Move>& receives, bool of_all);

  enum class News {
    complete,      // all that is to come is there, and what is sent may be changed
    quiet,         // nothing has come in time, or a rank has rung off
    full,          // that rank has taken nothing in time
    unmet,         // the inbox of that rank is to be looked up
    under_way,     // a transfer to that rank has not ended in time
    unregistered,  // the Memory of what is to be received is missing
    other,         // that rank has sent what belongs to another call
    length,        // ... as many bytes of it
    payload,       // what has come is to be brought to where a CPU does not reach
  };
  struct Outcome {
    News news = News::complete;
    Rank rank = 0;
    const Move* move = nullptr;  // that it is about
    Label label{};               // of what has come
    std::uint64_t nbytes = 0;
    std::vector<std::byte> payload{};
    std::shared_ptr<Transfer> transfer{};
  };
  // Goes on. slice: how long to wait for each of what comes; last: for all. Throws what a Transfer,
  // or posting one, does: then culprit() is the rank that it is about.
  Outcome run(Deadline::Seconds slice, const Deadline& last);
  std::optional<Rank> culprit() const noexcept { return culprit_; }

  void set_memory(std::size_t receive, Memory memory) {
    receives_.at(receive).memory = std::make_shared<const Memory>(std::move(memory));
  }
  const Move& receive(std::size_t number) const { return receives_.at(number); }
  std::size_t number_of(const Move& receive) const noexcept { return &receive - receives_.data(); }
  std::vector<Rank> missing() const;  // from which something has yet to come
  void look();                        // what has failed is never answered: throws as run() does
  void announce();                    // large blocks, once

 private:
  struct Saying {
    Line* line;
    What what;
    const Move* move;
  };
  using Stop = std::optional<Outcome>;

  void forget() noexcept;
  void add_partners(const std::vector<Move>& moves);
  static bool fits(const Saying& saying) noexcept;
  Deadline until() const;
  void say(What what, const Move& move);
  Stop say_next();
  Stop send(Line& line, const Header& header, std::span<const std::byte> payload);
  Stop await(Line& line, const std::shared_ptr<Transfer>& transfer);
  Stop take_from(Line& line);
  Stop on(Line& line, Message& message);
  void write(Line& line, const Move& move, std::span<const std::byte> where);
  bool hear();
  bool is_over() const noexcept;
  Stop finish();

  const std::shared_ptr<Lines> lines_;
  std::vector<Move> sends_, receives_;  // in place
  bool of_all_ = false;
  std::vector<Line*> partners_;
  std::vector<Saying> to_say_;
  std::size_t said_ = 0;        // of these
  std::vector<Line*> to_take_;  // lines that may have something
  std::size_t missing_ = 0;     // messages
  bool announced_ = false;
  std::optional<Rank> culprit_;
  Deadline::Seconds slice_{0};
  Deadline last_ = Deadline::after(Deadline::Seconds{0});
};

}  // namespace zerohop::engine::collective
