// One device of an Endpoint. A Peer has a queue pair on each rail, tied to the rail of the same
// number at the other end.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/locks.hpp"
#include "rdma/connection_manager.hpp"
#include "rdma/protection_domain.hpp"

namespace zerohop::engine {

inline constexpr std::size_t kMaxRails = 8;
using RailIndex = std::uint8_t;
using RailMask = std::uint32_t;                         // bit i: rail i
using RailKeys = std::array<std::uint32_t, kMaxRails>;  // lkeys or rkeys; 0: none with that rail

class Rail {
 public:
  // reason: why this device, half a sentence. manager: of an iWARP device, which needs one, or as
  // the knob rdma_cm wants it.
  Rail(RailIndex index, std::shared_ptr<rdma::ProtectionDomain> domain, std::string reason,
       std::shared_ptr<rdma::ConnectionManager> manager = nullptr)
      : index_(index),
        name_(domain->device().name()),
        software_(domain->verbs().reg_copied_mr != nullptr),
        has_atomics_(domain->device().has_atomics()),
        iwarp_(domain->device().is_iwarp()),
        reason_(std::move(reason)),
        managed_(manager != nullptr),
        manager_(std::move(manager)),
        domain_(std::move(domain)) {}

  RailIndex index() const noexcept { return index_; }
  const std::string& name() const noexcept { return name_; }
  const std::string& reason() const noexcept { return reason_; }
  bool has_atomics() const noexcept { return has_atomics_; }
  // The software HCA copies GPU memory, where an adapter reaches it by itself or not at all.
  bool software() const noexcept { return software_; }

  // Throws Error once let go of.
  std::shared_ptr<rdma::ProtectionDomain> domain() const {
    const std::lock_guard lock(mutex_);
    if (domain_) return domain_;
    throw Error("this Endpoint is closed: make a new one");
  }
  // No immediate data, and a completed request says only that TCP has it.
  bool is_iwarp() const noexcept { return iwarp_; }
  // A connection manager connects the queue pairs. Otherwise their addresses alone connect them.
  bool managed() const noexcept { return managed_; }
  // Null: it has none, or was let go of.
  std::shared_ptr<rdma::ConnectionManager> manager() const {
    const std::lock_guard lock(mutex_);
    return manager_;
  }

  // For who keeps the Endpoint from closing meanwhile.
  rdma::Device& device() const { return domain()->device(); }

  // The Endpoint is closed: the device is released, whatever Peers the program keeps.
  void release() noexcept {
    std::shared_ptr<rdma::ProtectionDomain> last;  // closed outside the lock
    std::shared_ptr<rdma::ConnectionManager> last_manager;
    const std::lock_guard lock(mutex_);
    last.swap(domain_);
    last_manager.swap(manager_);
  }

  // The device failed or was removed: nothing new may be made on it. Called once.
  void lose(const std::string& cause) {
    loss_ = cause;
    gone_.store(true);  // behind the cause, which other threads read once they see it
  }
  bool gone() const noexcept { return gone_.load(); }
  const std::string& loss() const noexcept { return loss_; }  // why, once gone()

 private:
  const RailIndex index_;
  const std::string name_;
  const bool software_;
  const bool has_atomics_;
  const bool iwarp_;
  const std::string reason_;
  const bool managed_;
  mutable Mutex<Rank::rails> mutex_;  // guards the next two
  std::shared_ptr<rdma::ConnectionManager> manager_;
  std::shared_ptr<rdma::ProtectionDomain> domain_;
  std::string loss_;
  std::atomic<bool> gone_{false};
};

using Rails = std::vector<std::shared_ptr<Rail>>;  // by index; never empty

// Why none of them is left; nullopt as long as one is.
inline std::optional<std::string> all_gone(const Rails& rails) {
  if (!std::ranges::all_of(rails, &Rail::gone, [](const auto& rail) -> Rail& { return *rail; })) {
    return std::nullopt;
  }
  return rails.front()->loss();
}

}  // namespace zerohop::engine
