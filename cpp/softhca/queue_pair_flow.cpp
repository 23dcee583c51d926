// Progress of a queue pair: serving its connection, completing work, and failing.
#include <sys/epoll.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/report.hpp"
#include "softhca/completion_queue.hpp"
#include "softhca/context.hpp"
#include "softhca/queue_pair.hpp"
#include "softhca/shared_receive_queue.hpp"

namespace zerohop::softhca {
namespace {

// How long the last frame may take to be sent after an error, before the connection is cut.
constexpr std::chrono::milliseconds kClosingTime{1000};

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM: return IBV_WC_SEND;
    default: return IBV_WC_RDMA_WRITE;
  }
}

// A requester gets a completion for it; on the responding side there is none, so log it.
void report_copy(const Failure& failure) noexcept {
  if (failure.kind == Failure::Kind::request) return;
  char text[160];
  std::snprintf(text, sizeof text,
                "copying between a GPU and the host failed with CUDA error %d, so a request of a "
                "peer was not carried out: see the documentation of CUresult",
                failure.copy_error);
  report(text);
}

}  // namespace

bool QueuePair::serve(bool polled) noexcept {
  bool busy = false;
  if (!connection.is_open()) {
    connection.on_ready();
  } else if (closing_) {
    if (!connection.discard_input()) fail({.kind = Failure::Kind::lost});
    write(/*acknowledge=*/true);
  } else {
    busy = serve_open(polled);
  }
  settle();
  if (direct != nullptr && direct->has_due() && !sends.full() && state == IBV_QPS_RTS) {
    take_direct();  // there was no room earlier
    send_posted();
  }
  return busy;
}

bool QueuePair::serve_open(bool polled) noexcept {
  const bool owed = responder.owes_acknowledgement();
  const bool may_read = !faulty || faulty->may_read();
  const bool received = may_read && reader.read(*this);
  if (faulty && received) faulty->has_read();
  // An empty poll ends here: without input, whatever is due was written when it became due.
  if (!received && !owed && !connection.wants_write()) return false;
  const bool late = polled && !owed && responder.delivered();
  if (failure_.kind == Failure::Kind::none) write(/*acknowledge=*/!late);
  if (responder.owes_acknowledgement()) device.progress.acknowledge_later(*this);
  return true;
}

void QueuePair::flush() noexcept {
  write(/*acknowledge=*/false);
  settle();
}

void QueuePair::acknowledge_late() noexcept {
  write(/*acknowledge=*/true);
  settle();
}

void QueuePair::write(bool acknowledge) noexcept {
  if (!connection.is_open()) return;
  const FrameWriter::Io result = writer.flush(*this, acknowledge);
  if (result == FrameWriter::Io::failed) return;
  connection.want_write(result == FrameWriter::Io::blocked || result == FrameWriter::Io::more);
  if (closing_ && result == FrameWriter::Io::done) finish_closing(/*said=*/true);
}

void QueuePair::drop_frames() noexcept {
  writer.reset();
  reader.reset();
  if (faulty) faulty->reset();
}

void QueuePair::on_ready(std::uint32_t ready) noexcept {
  std::lock_guard guard(lock);
  // Raised repeatedly, even if not requested: do not delay reading the end of a connection.
  if (faulty && (ready & (EPOLLHUP | EPOLLERR)) != 0) faulty->read_now();
  serve(device.progress.sweep_is_polled());
}

void QueuePair::on_time() noexcept {
  std::lock_guard guard(lock);
  if (closing_) {
    fail({.kind = Failure::Kind::lost});
  } else if (connection.is_open()) {
    requester.on_time();
    write(/*acknowledge=*/true);
  } else {
    connection.on_time();
  }
  settle();
}

void QueuePair::fail(const Failure& failure) noexcept {
  // The failed copy belongs to data from before any other error.
  if (failure_.kind == Failure::Kind::none || failure.copy_error != 0) failure_ = failure;
}

void QueuePair::settle() noexcept {
  if (failure_.kind == Failure::Kind::none) return;
  const Failure failure = failure_;
  failure_ = {};
  if (closing_) return finish_closing(/*said=*/false);
  if (state == IBV_QPS_ERR) return;
  state = IBV_QPS_ERR;
  if (failure.copy_error != 0) report_copy(failure);
  switch (failure.kind) {
    case Failure::Kind::none: return;
    case Failure::Kind::lost:
      lost_idle_ = sends.empty();
      fail_oldest(IBV_WC_RETRY_EXC_ERR);
      break;
    case Failure::Kind::corrupt:
      fail_oldest(IBV_WC_FATAL_ERR);
      raise(IBV_EVENT_QP_FATAL);
      break;
    case Failure::Kind::overrun: raise(IBV_EVENT_QP_FATAL); break;
    case Failure::Kind::request: fail_oldest(failure.status, failure.copy_error); break;
    case Failure::Kind::withdrawn: raise(IBV_EVENT_QP_ACCESS_ERR); break;
    case Failure::Kind::responder: return refuse_request(failure.refusal);
  }
  to_error();
}

void QueuePair::fail_oldest(ibv_wc_status status, int vendor) noexcept {
  if (sends.empty()) return;
  complete_send(sends.at(sends.head()), status, vendor);
  sends.pop();
}

void QueuePair::to_error() noexcept {
  state = IBV_QPS_ERR;
  closing_ = false;
  connection.close();
  drop_frames();
  flush_sends();
  flush_receives();
}

// Sends the peer the reason. Until then the frame before it must be sent whole: the memory of its
// requests stays in use, so they are flushed afterwards.
void QueuePair::refuse_request(wire::Refusal refusal) noexcept {
  if (refusal == wire::Refusal::access) {
    device.guesses.add(other_end(connection.fd()));
    raise(IBV_EVENT_QP_ACCESS_ERR);
  }
  if (refusal == wire::Refusal::invalid_request) raise(IBV_EVENT_QP_REQ_ERR);
  responder.refuse(refusal);
  closing_ = true;
  flush_receives();
  device.timers.set(*this, Clock::now() + kClosingTime);
  write(/*acknowledge=*/true);
  if (failure_.kind != Failure::Kind::none) settle();
}

// `said`: the refusal has been sent.
void QueuePair::finish_closing(bool said) noexcept {
  closing_ = false;
  if (said) {
    connection.linger();
  } else {
    connection.close();
  }
  drop_frames();
  flush_sends();
}

void QueuePair::to_reset() noexcept {
  state = IBV_QPS_RESET;
  closing_ = false;
  lost_idle_ = false;
  failure_ = {};
  connection.close();
  drop_frames();
  requester.reset();
  responder.reset();
  sends.clear();
  if (direct != nullptr) direct->reset();
  receives.clear();
  if (taken.there && srq != nullptr) SharedReceiveQueue::of(srq).put_back(taken);
  taken.there = last_receive_raised_ = false;
  attributes = {};
  CompletionQueue::of(send_cq).purge(qp_num);
  CompletionQueue::of(recv_cq).purge(qp_num);
}

void QueuePair::flush_queues() noexcept {
  if (!closing_) flush_sends();
  flush_receives();
}

void QueuePair::flush_sends() noexcept {
  do {
    take_direct();
    if (!sends.empty() && std::exchange(lost_idle_, false)) fail_oldest(IBV_WC_RETRY_EXC_ERR);
    for (; !sends.empty(); sends.pop()) complete_send(sends.at(sends.head()), IBV_WC_WR_FLUSH_ERR);
  } while (direct != nullptr && direct->has_due());
  requester.reset();
  sends.clear();
}

void QueuePair::flush_receives() noexcept {
  while (taken.there || receives.take(taken)) complete_receive(IBV_WC_WR_FLUSH_ERR);
  const bool reported = std::exchange(last_receive_raised_, true);
  if (srq != nullptr && !reported) raise(IBV_EVENT_QP_LAST_WQE_REACHED);
}

void QueuePair::raise(ibv_event_type type) noexcept { device.events.raise(type, this); }

void QueuePair::complete_send(const SendEntry& entry, ibv_wc_status status, int vendor) noexcept {
  ibv_wc completion{};
  completion.wr_id = entry.wr_id;
  completion.status = status;
  completion.vendor_err = static_cast<std::uint32_t>(vendor);
  completion.opcode = completion_opcode(entry.opcode);
  completion.qp_num = qp_num;
  completion.byte_len = entry.nbytes;
  CompletionQueue& cq = CompletionQueue::of(send_cq);
  cq.set_hot(*this);
  if (!cq.push(completion, /*solicited=*/false)) fail({.kind = Failure::Kind::overrun});
}

bool QueuePair::take_receive() noexcept {
  if (take_posted() || receive_source == nullptr) return taken.there;
  receive_source->fetch();
  return take_posted();
}

bool QueuePair::take_posted() noexcept {
  return srq != nullptr ? SharedReceiveQueue::of(srq).take(taken) : receives.take(taken);
}

void QueuePair::complete_receive(ibv_wc_status status) noexcept {
  taken.there = false;
  ibv_wc completion{};
  completion.wr_id = taken.entry.wr_id;
  completion.status = status;
  completion.opcode = IBV_WC_RECV;
  completion.qp_num = qp_num;
  if (!CompletionQueue::of(recv_cq).push(completion, /*solicited=*/true)) {
    fail({.kind = Failure::Kind::overrun});
  }
}

void QueuePair::complete_receive(const wire::Packet& last, std::uint32_t nbytes) noexcept {
  taken.there = false;
  ibv_wc completion{};
  completion.wr_id = taken.entry.wr_id;
  completion.status = IBV_WC_SUCCESS;
  completion.opcode = last.op == wire::Op::send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  completion.byte_len = nbytes;
  completion.qp_num = qp_num;
  completion.src_qp = attributes.dest_qp_num;
  if ((last.flags & wire::kImmediate) != 0) {
    completion.wc_flags = IBV_WC_WITH_IMM;
    completion.imm_data = last.sequence;  // network byte order on both sides: sent unchanged
  }
  CompletionQueue& cq = CompletionQueue::of(recv_cq);
  cq.set_hot(*this);
  if (!cq.push(completion, (last.flags & wire::kSolicited) != 0)) {
    fail({.kind = Failure::Kind::overrun});
  }
}

}  // namespace zerohop::softhca
