#include "softhca/context.hpp"

#include <cerrno>
#include <new>

#include "base/error.hpp"
#include "softhca/completion_queue.hpp"
#include "softhca/queue_pair.hpp"
#include "softhca/shared_receive_queue.hpp"

namespace zerohop::softhca {

Context::Context(const SoftDevice& soft_device)
    : ibv_context{},
      timers(poller),
      faults(*this),
      listener(*this, soft_device.address),
      progress(*this) {
  device = const_cast<SoftDevice*>(&soft_device);  // ibv_context declares it non-const
  ops.poll_cq = softhca::poll_cq;
  ops.req_notify_cq = softhca::req_notify_cq;
  ops.post_send = softhca::post_send;
  ops.post_recv = softhca::post_recv;
  ops.post_srq_recv = softhca::post_srq_recv;
  cmd_fd = -1;
  async_fd = events.fd();
  num_comp_vectors = 1;
  ::pthread_mutex_init(&mutex, nullptr);
  progress.start();
}

Context::~Context() {
  progress.stop();
  ::pthread_mutex_destroy(&mutex);
}

ibv_context* open_device(ibv_device* device) {
  try {
    return new Context(SoftDevice::of(device));
  } catch (const Error& error) {
    errno = error.code();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return nullptr;
}

int close_device(ibv_context* handle) {
  Context& context = Context::of(handle);
  if (context.forked()) return 0;  // the parent's object; its memory is freed with this process
  if (context.users.load() != 0) return EBUSY;
  delete &context;
  return 0;
}

}  // namespace zerohop::softhca
