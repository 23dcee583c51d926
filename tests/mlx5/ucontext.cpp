#include "ucontext.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/error.hpp"
#include "base/scarcity.hpp"
#include "refusals.hpp"
#include "softhca/async_events.hpp"
#include "softhca/completion_channel.hpp"
#include "softhca/completion_queue.hpp"
#include "softhca/context.hpp"
#include "softhca/device.hpp"
#include "softhca/memory_table.hpp"
#include "softhca/protection_domain.hpp"
#include "softhca/queue_pair.hpp"
#include "softhca/shared_receive_queue.hpp"
#include "tree.hpp"

namespace zerohop::mlx5sim {
namespace {

void make_non_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

// Announces that a command waits for the lock, so that the thread gives way.
class Turn {
 public:
  Turn(std::mutex& mutex, std::atomic<int>& waiting) : waiting_(waiting) {
    waiting_.fetch_add(1);
    lock_ = std::unique_lock(mutex);
  }
  ~Turn() {
    waiting_.fetch_sub(1);
    waiting_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<int>& waiting_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace

Ucontext::Ucontext(int number) : device(number), watch_(number), port_up_(watch_.is_port_up()) {
  if (watch_.is_removed()) throw Refused{ENODEV};
  softhca::SoftDevice* below = softhca::loopback_device("soft0@" + tree::address(number));
  if (below == nullptr) throw Refused{ENODEV};
  soft = softhca::open_device(below);
  if (soft == nullptr) throw Refused{errno};
  soft_channel_ = softhca::create_comp_channel(soft);
  if (soft_channel_ != nullptr) {
    soft_cq = softhca::create_cq(soft, softhca::limits::kCompletions, nullptr, soft_channel_, 0);
  }
  if (soft_cq == nullptr) {
    const int error = errno;
    close_all();
    throw Refused{error};
  }
  make_non_blocking(soft->async_fd);
  make_non_blocking(soft_channel_->fd);
  sigset_t all, before;  // the program's signal handlers do not run on this thread
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = start_thread("mlx5sim", [this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Ucontext::~Ucontext() {
  if (forked()) {
    thread_.detach();  // there is none
    return;
  }
  stopping_.store(true);
  bell_.ring();
  thread_.join();
  close_all();
}

void Ucontext::close_all() noexcept {
  for (const auto& [handle, qp] : qps) {
    tree::withdraw(device, qp->number());
    softhca::destroy_qp(qp->soft);
  }
  for (const auto& [handle, srq] : srqs) softhca::destroy_srq(srq->soft);
  for (const auto& [handle, mr] : mrs) softhca::dereg_mr(mr->soft);
  for (const auto& [handle, pd] : pds) softhca::dealloc_pd(pd->soft);
  if (soft_cq != nullptr) softhca::destroy_cq(soft_cq);
  if (soft_channel_ != nullptr) softhca::destroy_comp_channel(soft_channel_);
  if (soft != nullptr) softhca::close_device(soft);
}

int Ucontext::command(ib_uverbs_ioctl_hdr& header) noexcept {
  if (forked()) return EIO;
  const Turn turn(mutex_, waiting_);
  return errno_of([&] {
    Call call(header);
    refusals::check(call);
    if (removed_ && !refusals::destroys(call)) return EIO;
    carry_out(*this, call);
    return 0;
  });
}

void* Ucontext::map(void* address, std::size_t nbytes, int protection, off_t offset) noexcept {
  if (forked()) {
    errno = EIO;
    return MAP_FAILED;
  }
  const Turn turn(mutex_, waiting_);
  return uars.map(address, nbytes, protection, offset);
}

int Ucontext::break_queue_pairs() {
  const Turn turn(mutex_, waiting_);
  int broken = 0;
  for (const auto& [handle, qp] : qps) {
    if (state_of(qp->soft) != IBV_QPS_RTS) continue;
    ++broken;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    softhca::modify_qp(qp->soft, &attributes, IBV_QP_STATE);
    raise(IBV_EVENT_QP_FATAL, qp->user_handle, &qp->async);
    fail(*qp);
  }
  return broken;
}

void Ucontext::raise(std::uint32_t type, std::uint64_t element, EventSource* source) {
  const auto file = async.lock();
  const bool unheard = source != nullptr && element == 0;  // DEVX tells of its objects otherwise
  if (!file || unheard) return;
  file->push(ib_uverbs_async_event_desc{.element = element, .event_type = type, .reserved = 0},
             source);
}

std::uint32_t Ucontext::forget(EventSource& source) noexcept {
  const auto file = async.lock();
  return file ? file->forget(source) : source.delivered;
}

}  // namespace zerohop::mlx5sim
