// What is done to a device from outside, by its files in the tree: its port's state is rewritten,
// or its folder in /sys/class/infiniband_verbs is removed.
#pragma once

#include "base/unique_fd.hpp"

namespace zerohop::mlx5sim {

class Watch {
 public:
  explicit Watch(int device);  // throws Error

  int fd() const noexcept { return fd_.get(); }
  // Whether anything was done since the last call.
  bool changed() noexcept;

  bool is_removed() const noexcept;
  bool is_port_up() const;

 private:
  const int device_;
  UniqueFd fd_;
};

}  // namespace zerohop::mlx5sim
