// Registered memory for the entries of a send queue: the results of atomics and, if the device
// takes no short message inline, short messages. The peer has no key to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "rdma/memory_region.hpp"

namespace zerohop::engine {

class EntryMemory {
 public:
  static constexpr std::uint32_t kShort = 64;  // bytes of a short message, its header included

  // Throws RegistrationError.
  EntryMemory(std::shared_ptr<rdma::ProtectionDomain> domain, std::uint32_t entries,
              bool with_messages)
      : nbytes_(entries * (sizeof(std::uint64_t) + (with_messages ? kShort : 0u))),
        results_(new std::uint64_t[nbytes_ / sizeof(std::uint64_t)]),
        messages_(with_messages ? reinterpret_cast<std::byte*>(&results_[entries]) : nullptr),
        region_(rdma::MemoryRegion::create(std::move(domain), results_.get(), nbytes_,
                                           IBV_ACCESS_LOCAL_WRITE)) {}

  // After the queue pair is destroyed: releases the device.
  void deregister() noexcept { region_.reset(); }

  ibv_sge result_element(std::uint32_t entry) const noexcept {
    return {.addr = reinterpret_cast<std::uint64_t>(&results_[entry]),
            .length = sizeof(std::uint64_t),
            .lkey = lkey()};
  }
  std::uint64_t result(std::uint32_t entry) const noexcept { return results_[entry]; }

  bool has_messages() const noexcept { return messages_ != nullptr; }
  std::byte* message(std::uint32_t entry) const noexcept {
    return messages_ + std::size_t{entry} * kShort;
  }
  std::uint32_t lkey() const noexcept { return region_->lkey(); }
  std::size_t nbytes() const noexcept { return nbytes_; }

 private:
  const std::size_t nbytes_;
  std::unique_ptr<std::uint64_t[]> results_;
  std::byte* const messages_;
  std::shared_ptr<rdma::MemoryRegion> region_;
};

}  // namespace zerohop::engine
