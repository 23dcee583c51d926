// Mapped host memory of another process of this host, as GPUs of this process access it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/locks.hpp"
#include "gpu/host_pages.hpp"
#include "shm/local_session.hpp"

namespace zerohop::engine {

// Any thread.
class HostMappings {
 public:
  // For an existing mapping, which stays mapped as long as the pages are remembered or used.
  std::shared_ptr<gpu::HostPages> pages(const shm::LocalSession& session,
                                        const std::shared_ptr<const shm::RemoteMapping>& mapping);

  // Unmaps what its owner no longer exposes. Call it periodically. Returns how many mappings it
  // looked at: only those.
  std::size_t sweep(const shm::LocalSession& session);
  void clear();  // drops everything; copies under way keep what they use

 private:
  struct Known {
    std::shared_ptr<const shm::RemoteMapping> mapping;
    std::shared_ptr<gpu::HostPages> pages;
  };
  using All = std::unordered_map<std::uint64_t, Known>;  // by key

  Mutex<Rank::host_mappings> mutex_;  // guards the next two
  All all_;
  std::uint64_t struck_seen_ = 0;
};

}  // namespace zerohop::engine
