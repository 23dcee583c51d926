// A Peer's GPU copies, as seen by the CPU's copies that must keep order with them.
#pragma once

#include <functional>
#include <memory>

#include "base/deadline.hpp"
#include "base/failure.hpp"
#include "engine/wait/transfer.hpp"

namespace zerohop::engine {

class EarlierCopies {
 public:
  virtual ~EarlierCopies() = default;
  virtual bool pending() const noexcept = 0;
  // Without data to copy: calls `finish`, a notification, after everything that began before.
  virtual void follow(std::shared_ptr<Transfer> transfer, std::function<void()> finish,
                      const Deadline& deadline) = 0;
  // The Peer is lost: copies that do not end within a second fail with `failure`.
  virtual void cut_off(Failure failure) noexcept = 0;
};

}  // namespace zerohop::engine
