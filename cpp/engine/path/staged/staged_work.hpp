// The data of one staged transfer, cut into chunks that each fit a slot of a StagingRing.
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
  // What moves bytes between a slot and the far side of the piece.
  enum class By {
    device,  // an adapter, directly
    owner,   // the peer, on request: it copies to or from its GPU
    here,    // the CPU: the far side is in this process
  };
  Layout near;
  Layout far;
  std::shared_ptr<const gpu::Device> gpu{};  // of the near side; null: the host
  By by = By::device;
  RailKeys rkeys{};         // by device
  std::uint64_t key = 0;    // by owner
  std::uint64_t right = 0;  // of a requesting peer, to the near side

  RailMask rails() const noexcept;  // with a key
};

// A contiguous part of a piece. Spans lie in a slot one after the other.
struct StagedSpan {
  std::uint64_t near;
  std::uint64_t far;
  std::uint64_t nbytes;
  const StagedPiece* piece;
};

// The request of a peer that this work answers.
struct StagedAnswer {
  RailIndex rail = 0;
  std::uint32_t epoch = 0;  // of the path it arrived on
  std::uint32_t id = 0;
};

class StagedWork {
 public:
  enum class Direction { out, in };              // near to far, far to near
  static constexpr std::size_t kMaxSpans = 512;  // spans in a chunk

  StagedWork(std::shared_ptr<Transfer> transfer, Direction direction)
      : transfer_(std::move(transfer)), direction_(direction) {}

  void add(StagedPiece piece) { pieces_.push_back(std::move(piece)); }
  // Starts only after `other` is done, and fails if that fails.
  void follow(std::shared_ptr<Transfer> other) { followed_ = std::move(other); }
  // Called when all is in place, with the maker's hold of the transfer; must not wait, may throw.
  void then(std::function<void()> finish) { finish_ = std::move(finish); }
  // Written data is visible at the peer when the work is done, even without a message behind it.
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

  // The piece with which the next chunk begins; null: everything is cut.
  const StagedPiece* upcoming();
  // The next chunk: spans that one ring and one request can serve, up to `nbytes` and `most_spans`.
  std::vector<StagedSpan> cut(std::size_t nbytes, std::size_t most_spans = kMaxSpans);

  // Starts no further chunks. The failure covers one chunk only.
  void fail(Failure failure);
  const std::optional<Failure>& ended() const noexcept { return ended_; }
  bool is_done();        // all of it is in place, or none of the rest will be
  Failure conclusion();  // once done and failed: with the effect over all chunks

  // A chunk starts, and ends.
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
  bool touched_ = false;  // some bytes may have been written
  bool missed_ = false;   // some bytes of the started chunks may not have been
  std::optional<Failure> ended_;
  std::size_t next_piece_ = 0;
  std::optional<Runs> runs_;  // of the piece before piece_
  Run run_{};                 // cut next; nbytes 0: take the next of runs_
};

}  // namespace zerohop::engine
