// What one staged transfer moves, cut into chunks that each fit a slot of a StagingRing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/layout.hpp"
#include "base/runs.hpp"
#include "engine/rail.hpp"
#include "engine/wait/transfer.hpp"
#include "gpu/device.hpp"

namespace zerohop::engine {

// Two arrays of equal shape and item size.
struct StagedPiece {
  // Who moves bytes between a slot and the far side of the piece.
  enum class By {
    device,  // an adapter, by itself
    owner,   // the peer copies to or from its GPU: it is asked
    here,    // the CPU: it lies in this process
  };
  Layout near;
  Layout far;
  std::shared_ptr<const gpu::Device> gpu{};  // of the near side; null: the host
  By by = By::device;
  RailKeys rkeys{};         // by device
  std::uint64_t key = 0;    // by owner
  std::uint64_t right = 0;  // of a peer that asked, to the near side

  RailMask rails() const noexcept;  // with a key
};

// A contiguous part of a piece. They lie in a slot one after the other.
struct StagedSpan {
  std::uint64_t near;
  std::uint64_t far;
  std::uint64_t nbytes;
  const StagedPiece* piece;
};

// The question of a peer whose answer this work is.
struct StagedAnswer {
  RailIndex rail = 0;
  std::uint32_t epoch = 0;  // of the path that it came by
  std::uint32_t id = 0;
};

class StagedWork {
 public:
  enum class Direction { out, in };              // near to far, far to near
  static constexpr std::size_t kMaxSpans = 512;  // parts in a chunk

  StagedWork(std::shared_ptr<Transfer> transfer, Direction direction)
      : transfer_(std::move(transfer)), direction_(direction) {}

  void add(StagedPiece piece) { pieces_.push_back(std::move(piece)); }
  // Nothing of it happens before that is done, and it fails if that does.
  void follow(std::shared_ptr<Transfer> other) { followed_ = std::move(other); }
  // Called when all is in place, with the maker's hold of the transfer; does not wait, may throw.
  void then(std::function<void()> finish) { finish_ = std::move(finish); }
  // What is written is visible at the peer when the work is done, whatever follows.
  void set_visible() noexcept { visible_ = true; }
  bool visible() const noexcept { return visible_; }
  void answer(const StagedAnswer& answer) { answer_ = answer; }

  void set_number(std::uint64_t number) noexcept { number_ = number; }

  std::uint64_t number() const noexcept { return number_; }  // among the works of its Peer
  const std::shared_ptr<Transfer>& transfer() const noexcept { return transfer_; }
  Direction direction() const noexcept { return direction_; }
  const std::shared_ptr<Transfer>& followed() const noexcept { return followed_; }
  const std::function<void()>& finish() const noexcept { return finish_; }
  const std::optional<StagedAnswer>& answers() const noexcept { return answer_; }

  // The piece that the next chunk begins with; null: all is cut.
  const StagedPiece* upcoming();
  // The next chunk: parts that one ring and one request can serve, `nbytes` and so many at most.
  std::vector<StagedSpan> cut(std::size_t nbytes, std::size_t most_spans = kMaxSpans);

  // Nothing more of it is begun. The failure says what is known of one chunk alone.
  void fail(Failure failure);
  const std::optional<Failure>& ended() const noexcept { return ended_; }
  bool is_done();        // all of it is in place, or nothing more of it will be
  Failure conclusion();  // once done, and ended: with what is known of all chunks

  // A chunk goes, and comes back.
  void begin_chunk() noexcept { ++chunks_; }
  void end_chunk(bool placed) noexcept {
    --chunks_;
    (placed ? touched_ : missed_) = true;
  }
  unsigned chunks() const noexcept { return chunks_; }

 private:
  std::uint64_t number_ = 0;
  std::shared_ptr<Transfer> transfer_;
  Direction direction_;
  std::vector<StagedPiece> pieces_;
  std::shared_ptr<Transfer> followed_;
  std::function<void()> finish_;
  std::optional<StagedAnswer> answer_;
  bool visible_ = false;
  unsigned chunks_ = 0;   // under way
  bool touched_ = false;  // some bytes may be in place
  bool missed_ = false;   // some may not be, of what was cut
  std::optional<Failure> ended_;
  std::size_t next_piece_ = 0;
  std::optional<Runs> runs_;  // of the piece before it
  Run run_{};                 // what is cut next; nbytes 0: the next of runs_
};

}  // namespace zerohop::engine
