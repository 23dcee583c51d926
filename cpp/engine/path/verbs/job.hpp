// The work of one Transfer on a queue pair: pieces of data, optionally followed by a message. A job
// keeps its posting progress, so that a full queue only interrupts it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/layout.hpp"
#include "base/runs.hpp"
#include "engine/path/message.hpp"
#include "engine/path/verbs/send_pool.hpp"
#include "engine/path/verbs/work_chain.hpp"
#include "engine/rail.hpp"
#include "engine/wait/transfer.hpp"

namespace zerohop::engine {

// Two arrays of equal shape and item size.
struct Piece {
  Layout local;
  Layout remote;
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;
  bool on_host = true;  // the local side: the CPU may read it and send it inline
};

// Limits of the queue pair and its port.
struct JobLimits {
  std::uint32_t max_sge = 1;
  std::uint32_t max_read_sge = 1;
  std::uint32_t inline_bytes = 0;
  std::uint32_t max_message = 0;  // bytes of one work request
  // A completed write or send only shows that the device has sent it (iWARP: TCP has it), not that
  // it has arrived: each chain ends with a read of one byte, which is answered behind all of it.
  bool confirms = false;
  // Then also: a request that waits in the device, behind a fence or for want of max_rd_atomic,
  // must not be posted. Soft iWARP answers no reads of the peer meanwhile, and two such ends would
  // wait for each other.
  std::uint32_t max_reads = 0;

  // How much of `run` one request may move. Soft iWARP answers a read of at most 32 bytes that lie
  // on two pages with wrong ones (siw_try_1seg() of Linux 6.1 to 6.12 confuses the sizes of the
  // parts): such a read ends with the page, and the rest is another.
  std::uint64_t most_of(const Run& run, bool is_read) const noexcept {
    constexpr std::uint64_t kShort = 32;
    constexpr std::uint64_t kPage = 4096;  // larger pages end where one of these does
    const std::uint64_t on_page = kPage - run.b_address % kPage;
    const bool torn = confirms && is_read && run.nbytes <= kShort && run.nbytes > on_page;
    return torn ? on_page : max_message;
  }

  // A chain for what `room` entries of the send queue take.
  WorkChain chain(std::uint32_t room, std::uint32_t sge) const noexcept {
    return {std::min(room, WorkChain::kRequests) - (confirms ? 1 : 0), sge};
  }
};

// How far the paths of the other rails must be before a message may be posted: the number of the
// last job that each must have completed; 0: no condition.
using Fence = std::array<std::uint64_t, kMaxRails>;

class Job {
 public:
  // data: IBV_WR_RDMA_WRITE or IBV_WR_RDMA_READ of the pieces added with add().
  Job(std::shared_ptr<Transfer> transfer, ibv_wr_opcode data)
      : transfer_(std::move(transfer)), opcode_(data) {}

  // One 64-bit atomic on `address`: IBV_WR_ATOMIC_FETCH_AND_ADD or _CMP_AND_SWP. `add` is the
  // summand or the expected value. The old value becomes the Transfer's result.
  static Job atomic(std::shared_ptr<Transfer> transfer, ibv_wr_opcode opcode, std::uint64_t address,
                    std::uint32_t rkey, std::uint64_t add, std::uint64_t swap);

  void reserve(std::size_t pieces) { pieces_.reserve(pieces); }
  void add(const Piece& piece) { pieces_.push_back(piece); }
  // Only these bytes of all the pieces together, in the order of their runs. `skip` is less than
  // the size of the first piece.
  void restrict(std::uint64_t skip, std::uint64_t nbytes) noexcept {
    skip_ = skip;
    left_ = nbytes;
  }

  // Ends the writes with a read of their last byte, whose completion shows that they are visible.
  void read_back() noexcept { reads_back_ = true, bare_ = false; }
  // Its completion only shows that the adapter has the written data.
  bool is_bare_write() const noexcept {
    return bare_ && has_data() && opcode_ == IBV_WR_RDMA_WRITE;
  }

  // The message is posted after the data: once the data of reads has arrived (a fence), and never
  // visible before the data of writes.
  void then(const Message& message, SendBuffer payload = {}) {
    message_ = message;
    payload_ = std::move(payload);
  }
  // ... and not before the data of other rails has arrived. Null: it has already.
  void await(std::unique_ptr<const Fence> fence) noexcept { fence_ = std::move(fence); }
  const Fence* fence() const noexcept { return fence_.get(); }

  // Number of the job on its path, from 1.
  void set_number(std::uint64_t number) noexcept { number_ = number; }
  std::uint64_t number() const noexcept { return number_; }

  const std::shared_ptr<Transfer>& transfer() const noexcept { return transfer_; }
  bool has_data() const noexcept { return !pieces_.empty(); }
  bool started() const noexcept { return started_; }
  bool data_done() const noexcept {
    return started_ && !atomic_ && run_.nbytes == 0 && !reads_back_;
  }
  bool message_done() const noexcept { return !message_; }
  bool is_atomic() const noexcept {
    return opcode_ == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode_ == IBV_WR_ATOMIC_CMP_AND_SWP;
  }

  // Appends data requests until the chain is full or has all data. `result`: destination of an
  // atomic's old value, or of the read-back byte. Sends small data inline.
  void fill(WorkChain& chain, const JobLimits& limits, const ibv_sge& result) noexcept;

  const Message& message() const noexcept { return *message_; }
  std::size_t payload_nbytes() const noexcept { return payload_.payload().size(); }
  SendBuffer take_payload() noexcept { return std::move(payload_); }
  // Reads before the message must have completed when it is sent: it needs a fence.
  bool is_read() const noexcept { return opcode_ == IBV_WR_RDMA_READ; }
  void message_posted() noexcept { message_.reset(); }

 private:
  struct Atomic {
    std::uint64_t address;
    std::uint32_t rkey;
    std::uint64_t add;
    std::uint64_t swap;
  };

  bool next_run() noexcept;
  void cut_run() noexcept;
  void fill_request(WorkChain& chain, const JobLimits& limits) noexcept;
  void fill_atomic(WorkChain& chain, const ibv_sge& result) noexcept;
  void fill_read_back(WorkChain& chain, const ibv_sge& result) noexcept;

  std::shared_ptr<Transfer> transfer_;
  ibv_wr_opcode opcode_;
  std::vector<Piece> pieces_;
  std::size_t piece_ = 0;            // the next to begin
  std::optional<Runs> runs_;         // of the piece before it
  Run run_{};                        // posted next; nbytes 0: nothing (left)
  std::uint64_t skip_ = 0;           // bytes at the beginning of the first piece
  std::uint64_t left_ = UINT64_MAX;  // bytes at most after run_
  std::optional<Atomic> atomic_;
  std::optional<Message> message_;
  std::unique_ptr<const Fence> fence_;
  std::uint64_t number_ = 0;
  SendBuffer payload_;
  bool started_ = false;
  bool reads_back_ = false;  // still to be posted
  bool bare_ = true;
  std::uint64_t last_byte_ = 0;  // of the last write, at the peer; 0: none
  std::uint32_t last_rkey_ = 0;
};

}  // namespace zerohop::engine
