// One device of an Endpoint. A Peer has a queue pair on each rail, tied to the rail of the same
// number at the other end.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rdma/protection_domain.hpp"

namespace zerohop::engine {

inline constexpr std::size_t kMaxRails = 8;
using RailIndex = std::uint8_t;
using RailMask = std::uint32_t;                         // bit i: rail i
using RailKeys = std::array<std::uint32_t, kMaxRails>;  // lkeys or rkeys; 0: none with that rail

class Rail {
 public:
  // reason: why this device, half a sentence.
  Rail(RailIndex index, std::shared_ptr<rdma::ProtectionDomain> domain, std::string reason)
      : index_(index), domain_(std::move(domain)), reason_(std::move(reason)) {}

  RailIndex index() const noexcept { return index_; }
  const std::shared_ptr<rdma::ProtectionDomain>& domain() const noexcept { return domain_; }
  rdma::Device& device() const noexcept { return domain_->device(); }
  const std::string& name() const noexcept { return device().name(); }
  const std::string& reason() const noexcept { return reason_; }

  // The software HCA copies GPU memory, where an adapter reaches it by itself or not at all.
  bool software() const noexcept { return domain_->verbs().reg_copied_mr != nullptr; }

  // The device failed or was removed: nothing new may be made on it. Called once.
  void lose(const std::string& cause) {
    loss_ = cause;
    gone_.store(true);  // behind the cause, which other threads read once they see it
  }
  bool gone() const noexcept { return gone_.load(); }
  const std::string& loss() const noexcept { return loss_; }  // why, once gone()

 private:
  const RailIndex index_;
  const std::shared_ptr<rdma::ProtectionDomain> domain_;
  const std::string reason_;
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
