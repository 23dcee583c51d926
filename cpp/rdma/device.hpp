// An open verbs device and one of its ports.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/verbs.hpp"
#include "rdma/async_event.hpp"
#include "rdma/maker.hpp"
#include "rdma/port_choice.hpp"

namespace zerohop::rdma {

class Device {
 public:
  // Names of the devices that `verbs` lists, in its order.
  static std::vector<std::string> names(const driver::Verbs& verbs);

  // Opens the device called `name` and chooses its port and GID: those of the first port on which
  // queue pairs can run, otherwise of the first that has a GID (see obstacle). Throws VerbsError:
  // ENODEV (lists the existing names), EINVAL (no such port), and ENODATA if no port has a GID
  // (says what is wrong with each).
  static std::shared_ptr<Device> open(std::shared_ptr<const driver::Verbs> verbs,
                                      std::string_view name, const PortWish& wish = {});

  const driver::Verbs& verbs() const noexcept { return *verbs_; }
  ibv_context* context() const noexcept { return context_.get(); }
  const std::string& name() const noexcept { return name_; }
  const ibv_device_attr& attributes() const noexcept { return attributes_; }
  // "mlx5_0 (max_qp 4, for all processes together)": for messages, queried anew.
  std::string name_with(const char* limit, int ibv_device_attr::* most) const;
  std::uint8_t port() const noexcept { return port_; }
  const Gid& gid() const noexcept { return gid_; }
  // Why queue pairs could not run on any port tried at opening: half a sentence with the device as
  // its subject ("has port 1 in state DOWN: ..."); empty if they could.
  const std::string& obstacle() const noexcept { return obstacle_; }
  // Its queue pairs are connected by rdma_cm (connection_manager.hpp), and have neither immediate
  // data nor atomics; what waits for a receive ends the connection, where others delay it (RNR
  // NAK).
  bool is_iwarp() const noexcept { return context_->device->transport_type == IBV_TRANSPORT_IWARP; }
  // Whether it supports atomics and registering memory for them.
  bool has_atomics() const noexcept { return attributes_.atomic_cap != IBV_ATOMIC_NONE; }

  ibv_port_attr port_attributes() const;  // queried anew: ports go up and down
  // "port 1 of mlx5_0 is DOWN", queried anew; empty if it is up, or cannot be queried.
  std::string port_trouble() const;

  int async_fd() const noexcept { return context_->async_fd; }
  // The next event without blocking (opening makes the descriptor non-blocking). It is acknowledged
  // before it is returned: an unacknowledged event blocks destroy_* forever (man
  // ibv_get_async_event).
  std::optional<AsyncEvent> next_async_event();

  // Whether the kernel is removing the device (rdma link delete, module unloaded). The kernel waits
  // until no process has it open. Some drivers, such as rxe, raise no event: only the device's path
  // in /sys disappears.
  bool is_being_removed() const noexcept;

 private:
  struct CloseContext : Maker {
    void operator()(ibv_context* context) const noexcept;
  };
  using Context = std::unique_ptr<ibv_context, CloseContext>;

  Device(std::shared_ptr<const driver::Verbs> verbs, Context context, std::string name,
         const PortWish& wish);
  ibv_port_attr query_port(std::uint8_t port) const;
  void choose_port(const PortWish& wish);

  std::shared_ptr<const driver::Verbs> verbs_;
  Context context_;
  std::string name_;
  ibv_device_attr attributes_{};
  std::uint8_t port_ = 0;
  Gid gid_;
  std::string obstacle_;
};

}  // namespace zerohop::rdma
