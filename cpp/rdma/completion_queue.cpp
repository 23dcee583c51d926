#include "rdma/completion_queue.hpp"

#include <fcntl.h>

#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "driver/verbs_call.hpp"

namespace zerohop::rdma {
namespace {

void check_depth(const Device& device, int depth) {
  const int most = device.attributes().max_cqe;
  if (depth >= 1 && depth <= most) return;
  throw VerbsError("a completion queue of depth " + std::to_string(depth) + " is not possible: " +
                       device.name() + " allows 1 to " + std::to_string(most),
                   EINVAL);
}

}  // namespace

std::shared_ptr<CompletionQueue> CompletionQueue::create(std::shared_ptr<Device> device,
                                                         int depth) {
  check_depth(*device, depth);
  const driver::Verbs& verbs = device->verbs();
  const std::string channel_text = "ibv_create_comp_channel on " + device->name();
  Channel channel(driver::check_null(verbs.create_comp_channel(device->context()), channel_text),
                  DestroyChannel{{&verbs}});
  // consume_events() takes events until none is left, so reading must not block.
  const int flags = ::fcntl(channel->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    throw VerbsError(errno_message("cannot make a completion channel non-blocking", errno), errno);
  }
  ibv_cq* cq = verbs.create_cq(device->context(), depth, /*cq_context=*/nullptr, channel.get(),
                               /*comp_vector=*/0);
  if (cq == nullptr) {
    const int error_number = errno;  // building the message may change it
    driver::throw_verbs_error(
        "ibv_create_cq on " + device->name_with("max_cq", &ibv_device_attr::max_cq), error_number);
  }
  Handle handle(cq, Destroy{{&verbs}});
  return std::shared_ptr<CompletionQueue>(
      new CompletionQueue(std::move(device), std::move(channel), std::move(handle)));
}

CompletionQueue::CompletionQueue(std::shared_ptr<Device> device, Channel channel, Handle handle)
    : device_(std::move(device)), channel_(std::move(channel)), handle_(std::move(handle)) {}

void CompletionQueue::resize(int depth) {
  check_depth(*device_, depth);
  driver::check_errno(device_->verbs().resize_cq(handle_.get(), depth),
                      "ibv_resize_cq to " + std::to_string(depth));
}

int CompletionQueue::consume_events() noexcept {
  const driver::Verbs& verbs = device_->verbs();
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  unsigned taken = 0;
  int error = 0;
  while (error == 0 || error == EINTR) {
    const bool took = verbs.get_cq_event(channel_.get(), &cq, &context) == 0;
    error = took ? 0 : errno;
    taken += took ? 1 : 0;
  }
  // All at once: an acknowledgement takes a lock, and ibv_destroy_cq waits for every single one.
  if (taken > 0) verbs.ack_cq_events(handle_.get(), taken);
  return error == EAGAIN ? 0 : error;
}

void CompletionQueue::DestroyChannel::operator()(ibv_comp_channel* channel) const noexcept {
  if (!is_this_process()) return;
  driver::report_errno(verbs->destroy_comp_channel(channel), "ibv_destroy_comp_channel");
}

void CompletionQueue::Destroy::operator()(ibv_cq* cq) const noexcept {
  if (is_this_process()) driver::report_errno(verbs->destroy_cq(cq), "ibv_destroy_cq");
}

}  // namespace zerohop::rdma
