// How a client copies: with plain loads and stores where pages are mapped, else by system calls.
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "shm/local_session.hpp"

namespace zerohop::shm {
namespace {

constexpr std::size_t kVectors = 64;  // runs per system call

void* pointer(std::uint64_t address) noexcept { return reinterpret_cast<void*>(address); }

// The runs of one system call.
struct Batch {
  std::array<iovec, kVectors> local;
  std::array<iovec, kVectors> remote;
  std::size_t count = 0;
  std::uint64_t nbytes = 0;

  template <typename Source>
  void fill(Pieces<Source>& pieces) noexcept {
    Run piece{};
    count = 0;
    nbytes = 0;
    while (count < kVectors && nbytes < LocalSession::kPiece &&
           pieces.next(piece, LocalSession::kPiece - nbytes)) {
      local[count] = {pointer(piece.a_address), piece.nbytes};
      remote[count] = {pointer(piece.b_address), piece.nbytes};
      nbytes += piece.nbytes;
      ++count;
    }
  }
};

}  // namespace

Copied LocalSession::copy(const RemoteMapping& mapping, Direction direction, const Runs& runs,
                          std::uint64_t& nbytes) noexcept {
  return copy_all(mapping, direction, Pieces<Runs>(runs), nbytes);
}

Copied LocalSession::copy(const RemoteMapping& mapping, Direction direction,
                          std::span<const Run> runs, std::uint64_t& nbytes) noexcept {
  return copy_all(mapping, direction, Pieces<RunList>(RunList(runs)), nbytes);
}

template <typename Source>
Copied LocalSession::copy_all(const RemoteMapping& mapping, Direction direction,
                              Pieces<Source> pieces, std::uint64_t& nbytes) noexcept {
  for (;;) {
    const Copied outcome = copy_some(mapping, direction, pieces, nbytes, Patience::a_second);
    if (outcome != Copied::part) return outcome;
  }
}

Copied LocalSession::copy_step(const RemoteMapping& mapping, Direction direction, Cursor& cursor,
                               std::uint64_t& nbytes) noexcept {
  const auto step = [&](auto& pieces) {
    return copy_some(mapping, direction, pieces, nbytes, Patience::none);
  };
  return std::visit(step, cursor);
}

template <typename Source>
Copied LocalSession::copy_some(const RemoteMapping& mapping, Direction direction,
                               Pieces<Source>& pieces, std::uint64_t& nbytes,
                               Patience patience) noexcept {
  if (!pieces.more()) return Copied::all;
  const Copied outcome = mapping.pages ? copy_pages(mapping, direction, pieces, nbytes, patience)
                                       : copy_process(mapping, direction, pieces, nbytes, patience);
  return outcome == Copied::all && pieces.more() ? Copied::part : outcome;
}

void LocalSession::copy_run(const RemoteMapping& mapping, Direction direction,
                            const Run& run) noexcept {
  std::byte* theirs = mapping.at(run.b_address);
  void* ours = pointer(run.a_address);
  if (direction == Direction::write) {
    std::memcpy(theirs, ours, run.nbytes);
  } else {
    std::memcpy(ours, theirs, run.nbytes);
  }
}

bool LocalSession::stands(const RemoteMapping& mapping) const noexcept {
  return GenerationTable::stands(generations_->data(), mapping.entry);
}

// For the board if null.
Copied LocalSession::refusal(const RemoteMapping* mapping) const noexcept {
  if (left_.load(std::memory_order_relaxed)) return Copied::left;
  if (hazards().dismissed()) return Copied::dismissed;
  return mapping == nullptr || stands(*mapping) ? Copied::all : Copied::revoked;
}

bool LocalSession::to_own_process() const noexcept { return process_ == ::getpid(); }

// Counted on this side; the owner sees only whether there are any.
void LocalSession::change_holds(std::uint32_t slot, int by) {
  const std::lock_guard lock(holds_mutex_);
  if (holds_.size() <= slot) holds_.resize(slot + 1);
  int& count = holds_[slot];
  if (count == 0) hazards().hold(slot);
  count += by;
  if (count == 0) hazards().release(slot);
}

// The id of a process that has ended may be reused soon. The socket shows its end at once.
bool LocalSession::gone() const noexcept { return is_hung_up(socket_.get()); }

template <typename Source>
Copied LocalSession::copy_pages(const RemoteMapping& mapping, Direction direction,
                                Pieces<Source>& pieces, std::uint64_t& nbytes,
                                Patience patience) noexcept {
  const Hazards::Claim claim(hazards(), mapping.entry.slot, patience);
  if (const Copied no = refusal(claim, &mapping); no != Copied::all) return no;
  Run piece{};
  for (std::uint64_t under_claim = 0; under_claim < kPiece && pieces.next(piece, kPiece);) {
    copy_run(mapping, direction, piece);
    nbytes += piece.nbytes;
    under_claim += piece.nbytes;
  }
  return Copied::all;
}

template <typename Source>
Copied LocalSession::copy_process(const RemoteMapping& mapping, Direction direction,
                                  Pieces<Source>& pieces, std::uint64_t& nbytes,
                                  Patience patience) noexcept {
  const Hazards::Claim claim(hazards(), mapping.entry.slot, patience);
  if (const Copied no = refusal(claim, &mapping); no != Copied::all) return no;
  return copy_by_kernel(direction, pieces, nbytes);
}

Copied LocalSession::copy_by_kernel(Direction direction, std::span<const Run> runs) noexcept {
  Pieces<RunList> pieces{RunList(runs)};
  std::uint64_t nbytes = 0;
  const Copied outcome = copy_by_kernel(direction, pieces, nbytes);
  return outcome == Copied::unmapped && nbytes > 0 ? Copied::part : outcome;
}

// Call under a claim.
template <typename Source>
Copied LocalSession::copy_by_kernel(Direction direction, Pieces<Source>& pieces,
                                    std::uint64_t& nbytes) noexcept {
  const auto call = direction == Direction::write ? ::process_vm_writev : ::process_vm_readv;
  if (gone()) return Copied::gone;
  Batch batch;
  batch.fill(pieces);
  const ssize_t copied =
      call(process_, batch.local.data(), batch.count, batch.remote.data(), batch.count, 0);
  if (copied < 0) return errno == ESRCH ? Copied::gone : Copied::unmapped;
  nbytes += static_cast<std::uint64_t>(copied);
  return static_cast<std::uint64_t>(copied) == batch.nbytes ? Copied::all : Copied::unmapped;
}

}  // namespace zerohop::shm
