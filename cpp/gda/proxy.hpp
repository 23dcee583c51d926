// Executes what kernels write into a ring where they cannot drive an adapter: a host thread polls
// the ring and calls the Peer.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "gda/proxy_calls.hpp"
#include "gda/proxy_ring.hpp"

namespace zerohop::gda {

class Proxy {
 public:
  // Throws Error (out of memory or threads).
  explicit Proxy(ProxyEnds ends);
  // Executes what the ring holds and waits for it, within bounds.
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  const ProxyRing& ring() const noexcept { return ring_; }
  std::string error() const { return calls_.error(); }  // why it has stopped; empty: it works

 private:
  void run() noexcept;

  const unsigned generation_;  // of the process (fork)
  ProxyRing ring_;
  ProxyCalls calls_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses all members above
};

}  // namespace zerohop::gda
