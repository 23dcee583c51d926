// The control connections of an Endpoint, found by descriptor and by the endpoint at the other end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/control/link.hpp"

namespace zerohop::engine {

// Progress thread only, except for looks().
class Links {
 public:
  void add(const std::shared_ptr<Link>& link) { by_fd_.emplace(link->channel->fd(), link); }
  // Makes it a connection to that Peer's endpoint.
  void meet(Link& link, std::shared_ptr<Peer> peer);
  // Null: already removed.
  std::shared_ptr<Link> remove(Link& link);

  bool contains(const Link& link) const { return at(link) != by_fd_.end(); }
  std::shared_ptr<Link> find(int fd) const {  // null: none has it
    const auto found = by_fd_.find(fd);
    return found == by_fd_.end() ? nullptr : found->second;
  }
  std::size_t met() const noexcept { return by_endpoint_.size(); }  // connections to a Peer
  std::size_t count(const EndpointId& id) const { return by_endpoint_.count(id); }
  Link* of(const Peer& peer);                                   // null: it is lost
  std::vector<std::shared_ptr<Link>> to(const EndpointId& id);  // two while connections cross

  // Calls visit(Link&) for each. It may remove any of them, itself included.
  template <typename Visit>
  void each(Visit visit) {
    for (auto at = by_fd_.begin(); at != by_fd_.end();) {
      const auto [fd, link] = *at;
      looked();
      visit(*link);
      at = by_fd_.upper_bound(fd);
    }
  }

  // How many links have been looked at so far.
  std::uint64_t looks() const noexcept { return looks_.load(std::memory_order_relaxed); }

 private:
  using ByFd = std::map<int, std::shared_ptr<Link>>;

  ByFd::const_iterator at(const Link& link) const;
  void looked() noexcept { looks_.fetch_add(1, std::memory_order_relaxed); }

  ByFd by_fd_;
  std::multimap<EndpointId, Link*> by_endpoint_;
  std::atomic<std::uint64_t> looks_{0};
};

}  // namespace zerohop::engine
