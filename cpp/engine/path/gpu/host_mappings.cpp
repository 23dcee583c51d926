#include "engine/path/gpu/host_mappings.hpp"

#include <vector>

namespace zerohop::engine {

std::shared_ptr<gpu::HostPages> HostMappings::pages(
    const shm::LocalSession& session, const std::shared_ptr<const shm::RemoteMapping>& mapping) {
  const std::lock_guard lock(mutex_);
  if (const auto known = all_.find(mapping->key);
      known != all_.end() && known->second.mapping == mapping) {
    return known->second.pages;
  }
  const auto begin = reinterpret_cast<std::uint64_t>(mapping->pages->data());
  const Extent whole{begin, begin + mapping->pages->nbytes()};
  auto fresh = std::make_shared<gpu::HostPages>(
      whole, mapping, mapping->writable ? gpu::PageUse::write : gpu::PageUse::read);
  if (session.stands(*mapping)) all_[mapping->key] = {.mapping = mapping, .pages = fresh};
  return fresh;
}

std::size_t HostMappings::sweep(const shm::LocalSession& session) {
  std::vector<All::node_type> ended;  // unlocked outside the lock
  const std::lock_guard lock(mutex_);
  const auto mapping_of = [](const Known& known) -> const shm::RemoteMapping& {
    return *known.mapping;
  };
  return session.take_ended(all_, struck_seen_, mapping_of, ended);
}

void HostMappings::clear() {
  All last;  // unlocked outside the lock
  const std::lock_guard lock(mutex_);
  last.swap(all_);
}

}  // namespace zerohop::engine
