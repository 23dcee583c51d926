// Mapped memory of the host that another process of it has given away, as GPUs of this one reach
// it.
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
  // Of a mapping that is mapped. It stays mapped as long as they are remembered or used.
  std::shared_ptr<gpu::HostPages> pages(const shm::LocalSession& session,
                                        const std::shared_ptr<const shm::RemoteMapping>& mapping);

  // Lets go of what its owner exposes no more. To be called now and then. Returns how many it
  // looked at: those, and no others.
  std::size_t sweep(const shm::LocalSession& session);
  void clear();  // lets go of everything; copies under way keep what they use

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
