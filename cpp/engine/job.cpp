#include "engine/job.hpp"

#include <algorithm>

namespace zerohop::engine {

Job Job::atomic(std::shared_ptr<Transfer> transfer, ibv_wr_opcode opcode, std::uint64_t address,
                std::uint32_t rkey, std::uint64_t add, std::uint64_t swap) {
  Job job(std::move(transfer), opcode);
  job.atomic_ = Atomic{.address = address, .rkey = rkey, .add = add, .swap = swap};
  return job;
}

void Job::fill(WorkChain& chain, const JobLimits& limits, const ibv_sge& result) noexcept {
  if (!started_) next_run();
  started_ = true;
  if (atomic_ && !chain.full()) fill_atomic(chain, result);
  while (!chain.full() && run_.nbytes > 0) fill_request(chain, limits);
}

bool Job::next_run() noexcept {
  for (;;) {
    if (runs_ && runs_->next(run_)) return true;
    runs_.reset();
    run_ = {};
    if (piece_ == pieces_.size()) return false;
    const Piece& piece = pieces_[piece_++];
    if (piece.local.is_contiguous() && piece.remote.is_contiguous()) {
      run_ = {piece.local.address, piece.remote.address, piece.local.nbytes()};
      if (run_.nbytes > 0) return true;
    } else {
      runs_.emplace(piece.local, piece.remote);
    }
  }
}

// One request covers one contiguous range of remote memory; local pieces that belong there are
// gathered (write) or scattered (read) as its elements.
void Job::fill_request(WorkChain& chain, const JobLimits& limits) noexcept {
  ibv_send_wr& request = chain.add(opcode_);
  const Piece& piece = pieces_[piece_ - 1];
  request.wr.rdma.remote_addr = run_.b_address;
  request.wr.rdma.rkey = piece.rkey;
  std::uint64_t total = 0;
  std::uint64_t remote_end = run_.b_address;
  const std::size_t begun_in = piece_;
  do {
    const auto nbytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(run_.nbytes, limits.max_message - total));
    chain.add_element(run_.a_address, nbytes, piece.lkey);
    total += nbytes;
    remote_end += nbytes;
    run_ = {run_.a_address + nbytes, run_.b_address + nbytes, run_.nbytes - nbytes};
    if (run_.nbytes > 0 || !next_run()) break;  // the rest is the next request's
  } while (total < limits.max_message && piece_ == begun_in && run_.b_address == remote_end &&
           chain.takes_element());
  if (opcode_ == IBV_WR_RDMA_WRITE && piece.on_host && total <= limits.inline_bytes) {
    request.send_flags |= IBV_SEND_INLINE;
  }
}

void Job::fill_atomic(WorkChain& chain, const ibv_sge& result) noexcept {
  ibv_send_wr& request = chain.add(opcode_);
  request.wr.atomic.remote_addr = atomic_->address;
  request.wr.atomic.rkey = atomic_->rkey;
  request.wr.atomic.compare_add = atomic_->add;
  request.wr.atomic.swap = atomic_->swap;
  chain.add_element(result.addr, result.length, result.lkey);
  atomic_.reset();
}

}  // namespace zerohop::engine
