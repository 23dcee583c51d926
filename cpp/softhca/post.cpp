// ibv_post_send and ibv_post_recv: one lock and usually one system call for the whole chain.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softhca/completion_queue.hpp"
#include "softhca/context.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

std::uint64_t total_nbytes(const ibv_sge* elements, int count) {
  std::uint64_t nbytes = 0;
  for (int i = 0; i < count; ++i) nbytes += elements[i].length;
  return nbytes;
}

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// 0, or the errno for a request that can never succeed.
int refuse(const QueuePair& qp, const ibv_send_wr& work) {
  const bool queries = is_atomic(work.opcode) || work.opcode == IBV_WR_RDMA_READ;
  const bool moves = work.opcode == IBV_WR_SEND || work.opcode == IBV_WR_SEND_WITH_IMM ||
                     work.opcode == IBV_WR_RDMA_WRITE || work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (!queries && !moves) return EOPNOTSUPP;
  if (work.num_sge < 0 || static_cast<std::uint32_t>(work.num_sge) > qp.sends.most_sge())
    return EINVAL;
  const std::uint64_t nbytes = total_nbytes(work.sg_list, work.num_sge);
  if (nbytes > wire::kMaxMessage) return EINVAL;
  if (is_atomic(work.opcode) && nbytes != sizeof(std::uint64_t)) return EINVAL;
  const bool inlined = (work.send_flags & IBV_SEND_INLINE) != 0;
  return inlined && (queries || nbytes > qp.sends.most_inline()) ? EINVAL : 0;
}

void copy_inline(const ibv_send_wr& work, std::byte* to) {
  for (int i = 0; i < work.num_sge; ++i) {
    std::memcpy(to, reinterpret_cast<const void*>(work.sg_list[i].addr), work.sg_list[i].length);
    to += work.sg_list[i].length;
  }
}

void enqueue(QueuePair& qp, const ibv_send_wr& work) {
  const std::uint32_t number = qp.sends.tail();
  SendEntry& entry = qp.sends.at(number);
  entry = {};
  entry.wr_id = work.wr_id;
  entry.opcode = work.opcode;
  entry.nbytes = static_cast<std::uint32_t>(total_nbytes(work.sg_list, work.num_sge));
  entry.immediate = work.imm_data;  // network byte order, sent unchanged
  entry.signaled = qp.init.sq_sig_all != 0 || (work.send_flags & IBV_SEND_SIGNALED) != 0;
  entry.fenced = (work.send_flags & IBV_SEND_FENCE) != 0;
  entry.solicited = (work.send_flags & IBV_SEND_SOLICITED) != 0;
  entry.inlined = (work.send_flags & IBV_SEND_INLINE) != 0;
  const bool atomic = is_atomic(work.opcode);
  entry.remote_address = atomic ? work.wr.atomic.remote_addr : work.wr.rdma.remote_addr;
  entry.rkey = atomic ? work.wr.atomic.rkey : work.wr.rdma.rkey;
  if (atomic) {
    entry.compare = work.wr.atomic.compare_add;
    entry.swap = work.wr.atomic.swap;
  }
  if (entry.inlined) {
    copy_inline(work, qp.sends.inline_data(number));
  } else {
    entry.sge_count = static_cast<std::uint16_t>(work.num_sge);
    std::copy_n(work.sg_list, work.num_sge, qp.sends.sges(number));
  }
  if (qp.faulty) entry.refusal = qp.faulty->posted();
  qp.sends.push();
}

}  // namespace

bool QueuePair::send_posted() noexcept {
  if (state == IBV_QPS_ERR) {
    flush_queues();
  } else if (!connection.is_open()) {
    connection.start_retry_budget();
  } else if (!connection.wants_write() && !requester.gathers()) {
    flush();
    return !connection.wants_write();
  }
  return false;
}

void QueuePair::take_direct() noexcept {
  while (direct != nullptr && direct->has_due() && !sends.full()) {
    Wqe& entry = direct->take();
    if (entry.status == IBV_WC_SUCCESS && refuse(*this, entry.work) != 0) {
      refuse_wqe(entry, IBV_WC_LOC_QP_OP_ERR);
    }
    SendEntry& posted = sends.at(sends.tail());
    enqueue(*this, entry.work);
    if (entry.status != IBV_WC_SUCCESS) posted.refusal = entry.status;
    posted.signaled = (entry.work.send_flags & IBV_SEND_SIGNALED) != 0;
  }
}

bool QueuePair::answer_doorbell() noexcept {
  if ((state != IBV_QPS_RTS && state != IBV_QPS_ERR) || !direct->answer()) return false;
  take_direct();
  send_posted();
  return true;
}

int post_send(ibv_qp* handle, ibv_send_wr* chain, ibv_send_wr** bad) {
  QueuePair& qp = QueuePair::of(handle);
  *bad = chain;
  if (qp.device.forked()) return ENODEV;
  std::lock_guard guard(qp.lock);
  if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_ERR) return EINVAL;
  if (qp.direct != nullptr) return EOPNOTSUPP;
  int error = 0;
  for (; chain != nullptr; chain = chain->next) {
    error = qp.sends.full() || !qp.sends.make_room() ? ENOMEM : refuse(qp, *chain);
    if (error != 0) break;
    enqueue(qp, *chain);
  }
  *bad = chain;
  CompletionQueue::of(qp.send_cq).set_hot(qp);
  CompletionQueue::of(qp.recv_cq).set_hot(qp);
  if (qp.send_posted()) qp.device.progress.posted();
  return error;
}

int post_recv(ibv_qp* handle, ibv_recv_wr* chain, ibv_recv_wr** bad) {
  QueuePair& qp = QueuePair::of(handle);
  *bad = chain;
  if (qp.device.forked()) return ENODEV;
  std::lock_guard guard(qp.lock);
  if (qp.state == IBV_QPS_RESET || qp.srq != nullptr) return EINVAL;
  int error = 0;
  for (; chain != nullptr; chain = chain->next) {
    error = qp.receives.post(*chain);
    if (error != 0) break;
  }
  *bad = chain;
  if (qp.state == IBV_QPS_ERR) qp.flush_queues();
  return error;
}

}  // namespace zerohop::softhca
