// A shared receive queue (SRQ): all queue pairs made with it take receives from it.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

#include "base/locks.hpp"
#include "softhca/receive_queue.hpp"

namespace zerohop::softhca {

class SharedReceiveQueue : public ibv_srq {
 public:
  SharedReceiveQueue(ibv_pd* domain, void* user_context, const ibv_srq_attr& granted);
  ~SharedReceiveQueue();
  SharedReceiveQueue(const SharedReceiveQueue&) = delete;
  SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;
  static SharedReceiveQueue& of(ibv_srq* srq) noexcept {
    return *static_cast<SharedReceiveQueue*>(srq);
  }

  std::uint32_t most_sge() const noexcept { return receives_.most_sge(); }
  int post(ibv_recv_wr* chain, ibv_recv_wr** bad) noexcept;  // 0 or errno
  // Moves the oldest receive into `taken`. False: there is none.
  bool take(TakenReceive& taken) noexcept;
  // Returns a receive that no message has completed.
  void put_back(const TakenReceive& taken) noexcept;

  std::atomic<int> users{0};  // queue pairs

 private:
  Mutex<Rank::softhca_shared_receives> mutex_;  // taken after a queue pair's lock
  ReceiveQueue receives_;
};

// The members of driver::Verbs, and the entry of ibv_context_ops.
ibv_srq* create_srq(ibv_pd* domain, ibv_srq_init_attr* init);
int destroy_srq(ibv_srq* srq);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* chain, ibv_recv_wr** bad);

}  // namespace zerohop::softhca
