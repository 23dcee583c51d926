// A completion queue with its event channel.
#pragma once

#include <memory>
#include <span>

#include "rdma/device.hpp"

namespace zerohop::rdma {

class CompletionQueue {
 public:
  // depth: how many completions fit before the queue overruns (an unrecoverable error).
  static std::shared_ptr<CompletionQueue> create(std::shared_ptr<Device> device, int depth);

  Device& device() const noexcept { return *device_; }
  ibv_cq* handle() const noexcept { return handle_.get(); }
  int depth() const noexcept { return handle_->cqe; }
  void resize(int depth);

  // Returns how many entries of `completions` were filled; negative if the device failed. Never
  // blocks.
  [[nodiscard]] int poll(std::span<ibv_wc> completions) noexcept {
    return ibv_poll_cq(handle_.get(), static_cast<int>(completions.size()), completions.data());
  }

  // Events: arm(), poll once more (a completion may have come before the arming), then wait until
  // event_fd() is readable and call consume_events(), which takes and acknowledges all queued
  // events. Returns 0, or the errno after which the channel raises no more events.
  [[nodiscard]] int arm() noexcept {
    return ibv_req_notify_cq(handle_.get(), /*solicited_only=*/0);
  }
  int event_fd() const noexcept { return channel_->fd; }
  [[nodiscard]] int consume_events() noexcept;

 private:
  struct DestroyChannel : Maker {
    void operator()(ibv_comp_channel* channel) const noexcept;
  };
  struct Destroy : Maker {
    void operator()(ibv_cq* cq) const noexcept;
  };
  using Channel = std::unique_ptr<ibv_comp_channel, DestroyChannel>;
  using Handle = std::unique_ptr<ibv_cq, Destroy>;
  CompletionQueue(std::shared_ptr<Device> device, Channel channel, Handle handle);

  std::shared_ptr<Device> device_;
  Channel channel_;  // outlives the queue that uses it
  Handle handle_;
};

}  // namespace zerohop::rdma
