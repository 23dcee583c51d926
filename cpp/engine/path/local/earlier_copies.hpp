// What GPUs copy for a Peer, as far as the CPU's copies have to keep the order with it.
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
  // Nothing to copy: `finish`, a notification, is called behind everything that was begun before.
  virtual void follow(std::shared_ptr<Transfer> transfer, std::function<void()> finish,
                      const Deadline& deadline) = 0;
  // The Peer is lost: what does not end in a moment fails with that.
  virtual void cut_off(Failure failure) noexcept = 0;
};

}  // namespace zerohop::engine
