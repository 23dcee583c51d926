#include "engine/path/verbs/job.hpp"

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
  if (reads_back_ && run_.nbytes == 0 && !chain.full()) fill_read_back(chain, result);
}

bool Job::next_run() noexcept {
  for (;;) {
    if (left_ > 0 && runs_ && runs_->next(run_)) return cut_run(), true;
    runs_.reset();
    run_ = {};
    if (left_ == 0 || piece_ == pieces_.size()) return false;
    const Piece& piece = pieces_[piece_++];
    if (piece.local.is_contiguous() && piece.remote.is_contiguous()) {
      run_ = {piece.local.address, piece.remote.address, piece.local.nbytes()};
      if (run_.nbytes > 0) return cut_run(), true;
    } else {
      runs_.emplace(piece.local, piece.remote);
      if (skip_ > 0) runs_->skip(skip_ / runs_->run_nbytes());
      skip_ %= runs_->run_nbytes();
    }
  }
}

// Removes from the run what lies outside the bytes of this job.
void Job::cut_run() noexcept {
  const std::uint64_t nbytes = std::min(run_.nbytes - skip_, left_);
  run_ = {run_.a_address + skip_, run_.b_address + skip_, nbytes};
  left_ -= nbytes;
  skip_ = 0;
}

// One request covers one contiguous range of remote memory; its local pieces are gathered (write)
// or scattered (read) as elements.
void Job::fill_request(WorkChain& chain, const JobLimits& limits) noexcept {
  ibv_send_wr& request = chain.add(opcode_);
  const Piece& piece = pieces_[piece_ - 1];
  request.wr.rdma.remote_addr = run_.b_address;
  request.wr.rdma.rkey = piece.rkey;
  std::uint64_t total = 0;
  std::uint64_t remote_end = run_.b_address;
  const std::uint64_t most = limits.most_of(run_, is_read());
  const std::size_t begun_in = piece_;
  do {
    const auto nbytes = static_cast<std::uint32_t>(std::min(run_.nbytes, most - total));
    chain.add_element(run_.a_address, nbytes, piece.lkey);
    total += nbytes;
    remote_end += nbytes;
    run_ = {run_.a_address + nbytes, run_.b_address + nbytes, run_.nbytes - nbytes};
    if (run_.nbytes > 0 || !next_run()) break;  // the rest belongs to the next request
  } while (total < most && piece_ == begun_in && run_.b_address == remote_end &&
           chain.takes_element());
  last_byte_ = remote_end - 1;
  last_rkey_ = piece.rkey;
  if (opcode_ == IBV_WR_RDMA_WRITE && piece.on_host && total <= limits.inline_bytes) {
    request.send_flags |= IBV_SEND_INLINE;
  }
}

// A queue pair executes a read after the writes posted before it, without a fence.
void Job::fill_read_back(WorkChain& chain, const ibv_sge& result) noexcept {
  reads_back_ = false;
  if (last_byte_ == 0) return;
  ibv_send_wr& request = chain.add(IBV_WR_RDMA_READ);
  request.wr.rdma.remote_addr = last_byte_;
  request.wr.rdma.rkey = last_rkey_;
  chain.add_element(result.addr, 1, result.lkey);
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
