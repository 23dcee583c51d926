// Executes the entries of a ring by calls of a Peer. They take whatever way such calls take, except
// that none launches a kernel for GPU memory: the program's kernels may occupy the whole GPU. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/locks.hpp"
#include "engine/peer/peer.hpp"
#include "gda/proxy_ring.hpp"

namespace zerohop::gda {

constexpr std::uint64_t kValueNbytes = 32;  // as much as an entry carries

// The arrays of a queue, and what else its entries need.
struct ProxyEnds {
  std::shared_ptr<engine::Peer> peer;
  engine::Memory local;
  engine::RemoteMemory remote;
  engine::Memory values;  // host memory: kValueNbytes for each block of the ring
};

class ProxyCalls {
 public:
  // Pseudo-address of the Peer's board slots in entries; no memory lies there.
  static constexpr std::uint64_t kNotes = std::uint64_t{1} << 63;

  ProxyCalls(ProxyEnds ends, ProxyRing& ring);

  // Starts entries while there is room. Returns whether any was started.
  bool take() noexcept;
  // Completes finished entries, in order. Returns whether there were any.
  bool retire() noexcept;
  bool busy() const noexcept { return !begun_.empty(); }
  // The first failure, after which nothing is executed; empty: none. Any thread.
  std::string error() const;

 private:
  // An entry, or the last of several that one call executes, and whether it gets a completion.
  struct Turn {
    std::uint64_t index = 0;
    bool tells = false;
  };
  struct Begun {
    engine::TransferPtr transfer;  // null: refused, or nothing to do
    Turn turn;
    std::uint64_t result = 0;  // address for the old value; 0: none
    bool failed = false;
  };
  struct Batch {
    bool reads = false;
    std::vector<engine::Memory> near;
    std::vector<engine::RemoteMemory> far;
    Turn turn;
  };

  void handle(const softhca::Wqe& entry, const Turn& turn);
  void add(const softhca::Wqe& entry, const Turn& turn);
  void notify(const softhca::Wqe& entry, const Turn& turn);
  void fetch(const softhca::Wqe& entry, const Turn& turn);
  engine::Memory near_of(const softhca::Wqe& entry) const;
  engine::Memory keep_value(const softhca::Wqe& entry) const;
  // Starts the entries added so far, followed by a notification.
  void begin_batch(const std::optional<engine::Notification>& notification = {});
  engine::TransferPtr call_batch(const std::optional<engine::Notification>& notification);
  void give_up(const Turn& turn);
  void finish(Begun& first) noexcept;
  void fail(std::string_view why) noexcept;
  bool failed() const noexcept { return failed_; }

  const ProxyEnds ends_;
  ProxyRing& ring_;
  Batch batch_;
  std::deque<Begun> begun_;
  bool failed_ = false;

  mutable Mutex<Rank::proxy_calls> mutex_;  // guards error_
  std::string error_;
};

}  // namespace zerohop::gda
