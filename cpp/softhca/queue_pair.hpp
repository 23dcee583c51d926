// A reliable-connected queue pair: its state, its two queues and the machinery behind them.
//
//   post_send -> sends -> requester -> writer  ->  TCP  -> reader -> responder -> receives ->
//   completion
//                            ^-- acknowledgements and responses -- reader  <-  TCP  <- writer <-'
//
// `lock` guards everything but the constants. Anyone may drive progress: the caller of post_send, a
// caller of poll_cq, the context's thread; each calls serve() or flush() with the lock held.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "base/locks.hpp"
#include "softhca/bounce.hpp"
#include "softhca/connection.hpp"
#include "softhca/direct_sends.hpp"
#include "softhca/epoll.hpp"
#include "softhca/faulty_wire.hpp"
#include "softhca/frame_reader.hpp"
#include "softhca/frame_writer.hpp"
#include "softhca/receive_queue.hpp"
#include "softhca/requester.hpp"
#include "softhca/responder.hpp"
#include "softhca/send_queue.hpp"
#include "softhca/timers.hpp"
#include "softhca/wire.hpp"

namespace zerohop::softhca {

class Context;

// Why a queue pair goes to ERR. The machinery only records it, where it is found; settle() acts on
// it when no loop over the queues is running any more.
struct Failure {
  enum class Kind : std::uint8_t {
    none,
    lost,       // the connection ended: RETRY_EXC_ERR for the oldest request
    corrupt,    // the peer sent what no correct peer sends: FATAL_ERR for the oldest request
    overrun,    // a completion queue is full
    request,    // our oldest request failed with `status`
    responder,  // we refuse the peer's request with `refusal`
    withdrawn,  // memory that the peer was reading was deregistered: the stream cannot go on
  };
  Kind kind = Kind::none;
  ibv_wc_status status = IBV_WC_SUCCESS;
  wire::Refusal refusal{};
  int copy_error = 0;  // of the device's driver, when a copy through a Bounce failed
};

// Knows of receives that nobody has posted yet. Asked, with the queue pair's lock held, when a
// message finds none: it then posts them, to `receives` or to the shared queue.
class ReceiveSource {
 public:
  virtual void fetch() noexcept = 0;

 protected:
  ~ReceiveSource() = default;
};

class QueuePair final : public ibv_qp, public Watched, public Timed {
 public:
  QueuePair(Context& owner, ibv_pd* domain, const ibv_qp_init_attr& granted, std::uint32_t number);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  static QueuePair& of(ibv_qp* qp) noexcept { return *static_cast<QueuePair*>(qp); }

  Mutex<Rank::softhca_queue_pair> lock;
  Context& device;
  const std::uint64_t ordinal;  // of those that the device has made
  const ibv_qp_init_attr init;  // as granted
  ibv_qp_attr attributes{};     // as set by ibv_modify_qp
  SendQueue sends;
  std::unique_ptr<DirectSends> direct;      // null unless `sends` are posted by its doorbell
  ReceiveQueue receives;                    // its own; stays empty with a shared one
  ReceiveSource* receive_source = nullptr;  // of a simulated adapter (tests/mlx5)
  TakenReceive taken;
  Requester requester;
  Responder responder;
  Bounce bounce;  // of reader and writer: idle between their turns
  FrameWriter writer;
  FrameReader reader;
  Connection connection;
  std::unique_ptr<FaultyWire> faulty;  // null as long as it never had faults

  const ibv_gid& peer_gid() const noexcept { return attributes.ah_attr.grh.dgid; }
  bool is_closing() const noexcept { return closing_; }

  // Reads what has come and writes what is due. `polled`: a caller of poll_cq drives; an
  // acknowledgement may then wait for the next poll or post, which often has data to travel with.
  // Returns whether there was anything to do on an open connection.
  bool serve(bool polled) noexcept;
  void flush() noexcept;  // writes what is due
  // What was posted: now if it can be, else when there is a connection. Whether all of it left.
  bool send_posted() noexcept;
  void acknowledge_late() noexcept;            // sends an acknowledgement that found no company
  void fail(const Failure& failure) noexcept;  // the first one counts
  void settle() noexcept;                      // acts on a recorded failure
  void to_error() noexcept;                    // ERR by ibv_modify_qp: flushes everything at once
  void to_reset() noexcept;
  void flush_queues() noexcept;  // in ERR: completes with WR_FLUSH_ERR what was posted

  // Posts what the doorbell of a direct queue pair announced; false when it was not rung. One that
  // is not ready to send leaves it for later.
  bool answer_doorbell() noexcept;

  void complete_send(const SendEntry& entry, ibv_wc_status status, int vendor = 0) noexcept;
  // The receive for a message that begins, into `taken`. False: there is none.
  bool take_receive() noexcept;
  // Of `taken`: in error, or behind the last packet of a message of `nbytes`.
  void complete_receive(ibv_wc_status status) noexcept;
  void complete_receive(const wire::Packet& last, std::uint32_t nbytes) noexcept;

  void on_ready(std::uint32_t ready) noexcept override;
  void on_time() noexcept override;

  unsigned async_events_taken = 0;  // guarded by the lock of the context's AsyncEvents
  QueuePair* next_late =
      nullptr;  // in Progress's list of late acknowledgements; guarded by its lock
  bool in_late_list = false;
  QueuePair* next_direct = nullptr;  // in Doorbells; guarded by its lock

 private:
  bool serve_open(bool polled) noexcept;
  bool take_posted() noexcept;
  void take_direct() noexcept;  // into `sends`, as far as there is room
  void write(bool acknowledge) noexcept;
  void drop_frames() noexcept;
  void fail_oldest(ibv_wc_status status, int vendor = 0) noexcept;
  void refuse_request(wire::Refusal refusal) noexcept;
  void finish_closing(bool said) noexcept;
  void flush_sends() noexcept;
  void flush_receives() noexcept;
  void raise(ibv_event_type type) noexcept;

  Failure failure_{};
  // In ERR since the connection ended while nothing was posted. An adapter finds that out by the
  // next request, which ends with RETRY_EXC_ERR: so does ours.
  bool lost_idle_ = false;
  bool last_receive_raised_ = false;  // IBV_EVENT_QP_LAST_WQE_REACHED
  bool closing_ = false;  // in ERR, but the last frame and the refusal behind it are still leaving
};

// The members of driver::Verbs, and the entries of ibv_context_ops.
ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* init);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init);
int destroy_qp(ibv_qp* qp);
int post_send(ibv_qp* qp, ibv_send_wr* chain, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* chain, ibv_recv_wr** bad);

}  // namespace zerohop::softhca
