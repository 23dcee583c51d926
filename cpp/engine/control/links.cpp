#include "engine/control/links.hpp"

namespace zerohop::engine {

Links::ByFd::const_iterator Links::at(const Link& link) const {
  const auto found = by_fd_.find(link.channel->fd());
  return found != by_fd_.end() && found->second.get() == &link ? found : by_fd_.end();
}

void Links::meet(Link& link, std::shared_ptr<Peer> peer) {
  by_endpoint_.emplace(peer->identity().id, &link);
  link.peer = std::move(peer);
}

std::shared_ptr<Link> Links::remove(Link& link) {
  const auto found = at(link);
  if (found == by_fd_.end()) return nullptr;
  std::shared_ptr<Link> removed = found->second;
  by_fd_.erase(found);
  if (!link.peer) return removed;
  const auto [first, last] = by_endpoint_.equal_range(link.peer->identity().id);
  for (auto at = first; at != last; ++at) {
    if (at->second != &link) continue;
    by_endpoint_.erase(at);
    break;
  }
  return removed;
}

Link* Links::of(const Peer& peer) {
  const auto [first, last] = by_endpoint_.equal_range(peer.identity().id);
  for (auto at = first; at != last; ++at) {
    looked();
    if (at->second->peer.get() == &peer) return at->second;
  }
  return nullptr;
}

std::vector<std::shared_ptr<Link>> Links::to(const EndpointId& id) {
  std::vector<std::shared_ptr<Link>> links;
  const auto [first, last] = by_endpoint_.equal_range(id);
  for (auto at = first; at != last; ++at) {
    looked();
    links.push_back(at->second->shared_from_this());
  }
  return links;
}

}  // namespace zerohop::engine
