// A queue pair of a program: its rings and doorbell record, which libmlx5 has laid out and fills,
// and the queue pair of the software HCA that carries out what is in them.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "cq.hpp"
#include "event_file.hpp"
#include "queue_memory.hpp"
#include "softhca/queue_pair.hpp"
#include "srq.hpp"

namespace zerohop::mlx5sim {

struct Batch;

// As libmlx5 gives them.
struct QpRings {
  QueueMemory receives;
  std::uint32_t receive_count = 0;  // entries, a power of two; 0: none
  std::uint32_t receive_nbytes = 0;
  QueueMemory sends;
  std::uint32_t send_blocks = 0;  // of 64 bytes, a power of two
  QueueMemory record;             // two counters, of receives and of blocks of sends
  std::uint32_t user_index = 0;   // in completions
  std::uint32_t page = 0;         // where it rings
  bool scatters = false;          // short messages arrive in completions
};

class Qp final : public softhca::ReceiveSource {
 public:
  Qp(const QpRings& rings, ibv_qp* soft, Cq& send_cq, Cq& receive_cq, Srq* srq,
     const ibv_qp_cap& cap, std::uint64_t user_handle);
  ~Qp();
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  std::uint32_t number() const noexcept { return soft->qp_num; }
  std::uint32_t page() const noexcept { return rings_.page; }

  // Posts to the software HCA what was announced since. Whether there was anything.
  bool take_sends(Batch& scratch);
  bool take_receives();
  // A message has come: an adapter looks at the record now.
  void fetch() noexcept override;
  void reset() noexcept;  // both begin with the first entry again

  // Into the queue of the program. False: that has overrun.
  //
  // The software HCA learns at once that its peer is gone, and flushes. An adapter learns it by its
  // next request: until the program can have learned of an error, what was flushed is held back.
  bool complete(const ibv_wc& completion);
  // The program learns of an error, or asked for one: tells what was held back.
  bool fail();
  // A program that was told nothing finds the state that it has set.
  ibv_qp_state state_shown(ibv_qp_state below) const noexcept;

  ibv_qp* const soft;
  Cq& send_cq;
  Cq& receive_cq;
  Srq* const srq;  // null: receives of its own
  const std::uint64_t user_handle;
  const ibv_qp_cap cap;
  ibv_qp_attr attributes{};          // as set by the program
  ibv_qp_state set = IBV_QPS_RESET;  // likewise
  EventSource async;
  bool owes_last_receive = false;  // IBV_EVENT_QP_LAST_WQE_REACHED, held back
  bool rung = false;               // and not answered

 private:
  bool post(Batch& batch);

  bool take_own_receives();  // with the lock of `soft`
  bool push(const ibv_wc& completion);
  bool push_receive(const ibv_wc& completion, std::uint16_t index);
  void read_receive(std::uint16_t index, Receive& to) const;
  std::size_t take_out(const Receive& receive, std::span<std::byte> data) const;

  const QpRings rings_;
  bool failed_ = false;  // as far as the program can know
  std::vector<ibv_wc> held_back_;
  std::uint16_t sends_taken_ = 0;  // blocks
  std::uint16_t receives_taken_ = 0;
  // Entries that nobody can carry out: what their completions say.
  std::unordered_map<std::uint16_t, ibv_wc_status> malformed_;
};

// Of the software HCA's, with its lock.
ibv_qp_state state_of(ibv_qp* soft);

}  // namespace zerohop::mlx5sim
