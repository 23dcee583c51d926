// How a visitor copies: by plain stores and loads where pages are mapped, else by the kernel.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ipc/visit.hpp"

namespace zerohop::ipc {
namespace {

constexpr std::size_t kVectors = 64;  // runs handed to the kernel at once

void* pointer(std::uint64_t address) noexcept { return reinterpret_cast<void*>(address); }

// Those of a list, one by one.
class RunList {
 public:
  explicit RunList(std::span<const Run> runs) noexcept : left_(runs) {}

  bool next(Run& run) noexcept {
    if (left_.empty()) return false;
    run = left_.front();
    left_ = left_.subspan(1);
    return true;
  }

 private:
  std::span<const Run> left_;
};

// Takes runs apart into pieces, so that no claim is held for long.
template <typename Source>
class Pieces {
 public:
  explicit Pieces(Source& runs) noexcept : runs_(runs) {}

  // At most `most` bytes, which are more than 0. False at the end.
  bool next(Run& piece, std::uint64_t most) noexcept {
    if (left_.nbytes == 0 && !runs_.next(left_)) return false;
    piece = {left_.a_address, left_.b_address, std::min(left_.nbytes, most)};
    left_.a_address += piece.nbytes;
    left_.b_address += piece.nbytes;
    left_.nbytes -= piece.nbytes;
    return true;
  }

 private:
  Source& runs_;
  Run left_{};
};

// What one call of the kernel copies.
struct Batch {
  std::array<iovec, kVectors> local;
  std::array<iovec, kVectors> remote;
  std::size_t count = 0;
  std::uint64_t nbytes = 0;

  template <typename Source>
  bool fill(Pieces<Source>& pieces) noexcept {
    Run piece{};
    count = 0;
    nbytes = 0;
    while (count < kVectors && nbytes < Visit::kPiece &&
           pieces.next(piece, Visit::kPiece - nbytes)) {
      local[count] = {pointer(piece.a_address), piece.nbytes};
      remote[count] = {pointer(piece.b_address), piece.nbytes};
      nbytes += piece.nbytes;
      ++count;
    }
    return count > 0;
  }
};

}  // namespace

Copied Visit::copy(const Window& window, Direction direction, Runs& runs,
                   std::uint64_t& nbytes) noexcept {
  return copy_all(window, direction, runs, nbytes);
}

Copied Visit::copy(const Window& window, Direction direction, std::span<const Run> runs,
                   std::uint64_t& nbytes) noexcept {
  RunList list(runs);
  return copy_all(window, direction, list, nbytes);
}

template <typename Source>
Copied Visit::copy_all(const Window& window, Direction direction, Source& runs,
                       std::uint64_t& nbytes) noexcept {
  return window.pages ? copy_pages(window, direction, runs, nbytes)
                      : copy_process(window, direction, runs, nbytes);
}

void Visit::copy_run(const Window& window, Direction direction, const Run& run) noexcept {
  std::byte* theirs = window.at(run.b_address);
  void* ours = pointer(run.a_address);
  if (direction == Direction::write) {
    std::memcpy(theirs, ours, run.nbytes);
  } else {
    std::memcpy(ours, theirs, run.nbytes);
  }
}

bool Visit::stands(const Window& window) const noexcept {
  return Ledger::stands(ledger_->data(), window.entry);
}

// Of the board if null.
Copied Visit::refusal(const Window* window) const noexcept {
  if (left_.load(std::memory_order_relaxed)) return Copied::left;
  if (hazards().dismissed()) return Copied::dismissed;
  return window == nullptr || stands(*window) ? Copied::all : Copied::revoked;
}

bool Visit::to_own_process() const noexcept { return process_ == ::getpid(); }

// Counted here; the owner sees whether there is any.
void Visit::change_holds(std::uint32_t slot, int by) {
  const std::lock_guard lock(holds_mutex_);
  if (holds_.size() <= slot) holds_.resize(slot + 1);
  int& count = holds_[slot];
  if (count == 0) hazards().hold(slot);
  count += by;
  if (count == 0) hazards().let_go(slot);
}

// The number of a process that has ended may be another's soon. The socket tells at once.
bool Visit::gone() const noexcept { return is_hung_up(socket_.get()); }

template <typename Source>
Copied Visit::copy_pages(const Window& window, Direction direction, Source& runs,
                         std::uint64_t& nbytes) noexcept {
  Pieces pieces(runs);
  Run piece{};
  for (bool more = pieces.next(piece, kPiece); more;) {
    const Hazards::Claim claim(hazards(), window.entry.slot);
    if (const Copied no = refusal(claim, &window); no != Copied::all) return no;
    for (std::uint64_t under_claim = 0; more && under_claim < kPiece;) {
      copy_run(window, direction, piece);
      nbytes += piece.nbytes;
      under_claim += piece.nbytes;
      more = pieces.next(piece, kPiece);
    }
  }
  return Copied::all;
}

template <typename Source>
Copied Visit::copy_process(const Window& window, Direction direction, Source& runs,
                           std::uint64_t& nbytes) noexcept {
  const auto call = direction == Direction::write ? ::process_vm_writev : ::process_vm_readv;
  Pieces pieces(runs);
  Batch batch;
  while (batch.fill(pieces)) {
    const Hazards::Claim claim(hazards(), window.entry.slot);
    if (const Copied no = refusal(claim, &window); no != Copied::all) return no;
    if (gone()) return Copied::gone;
    const ssize_t copied =
        call(process_, batch.local.data(), batch.count, batch.remote.data(), batch.count, 0);
    if (copied < 0) return errno == ESRCH ? Copied::gone : Copied::unmapped;
    nbytes += static_cast<std::uint64_t>(copied);
    if (static_cast<std::uint64_t>(copied) != batch.nbytes) return Copied::unmapped;
  }
  return Copied::all;
}

}  // namespace zerohop::ipc
