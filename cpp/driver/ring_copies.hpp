// Entries of a ring in memory that the CPU cannot touch, such as a GPU's: each is copied.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "driver/copier.hpp"

namespace zerohop::driver {

class RingCopies {
 public:
  explicit RingCopies(std::shared_ptr<Copier> copier) : copier_(std::move(copier)) {}

  // 0, or the device driver's error code. All copies have ended when a call returns.
  int read(std::span<std::byte> to, const std::byte* from) const noexcept;
  // The last 8 bytes behind all others.
  int write(std::byte* to, std::span<const std::byte> entry) const noexcept;
  // That entry again and again, up to `nbytes`.
  int fill(std::byte* to, std::size_t nbytes, std::span<const std::byte> entry) const noexcept;

 private:
  // `copy` starts copies through the first chunk of a lane, and then they are waited for.
  template <typename Copy>
  int with_lane(Copy&& copy) const noexcept;

  const std::shared_ptr<Copier> copier_;
};

}  // namespace zerohop::driver
