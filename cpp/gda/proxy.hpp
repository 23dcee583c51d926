// Carries out what kernels write into a ring, where no adapter can be driven by them: a thread of
// the host looks at the ring, and calls the Peer.
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
  // What the ring holds is carried out and awaited, within bounds.
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  const ProxyRing& ring() const noexcept { return ring_; }
  std::string error() const { return calls_.error(); }  // why nothing is carried out any more

 private:
  void run() noexcept;

  const unsigned generation_;  // of the process (fork)
  ProxyRing ring_;
  ProxyCalls calls_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace zerohop::gda
