// What the entries of a ring ask for, done by calls of a Peer: whatever way those take, but for
// memory of a GPU no kernel, as the program's may occupy all of it. One thread at a time.
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

// The arrays of a queue, and what their entries need besides.
struct ProxyEnds {
  std::shared_ptr<engine::Peer> peer;
  engine::Memory local;
  engine::RemoteMemory remote;
  engine::Memory values;  // of the host: kValueNbytes for each block of the ring
};

class ProxyCalls {
 public:
  // Where entries find the slots of the Peer's board: no memory lies there.
  static constexpr std::uint64_t kNotes = std::uint64_t{1} << 63;

  ProxyCalls(ProxyEnds ends, ProxyRing& ring);

  // Begins what is due, as far as there is room. Whether anything was.
  bool take() noexcept;
  // Tells of what has ended, in order. Whether anything has.
  bool retire() noexcept;
  bool busy() const noexcept { return !begun_.empty(); }
  // The first failure, after which nothing is carried out; empty: there was none. Any thread.
  std::string error() const;

 private:
  // An entry, or several that one call carries out: the last, and whether it is to be told of.
  struct Turn {
    std::uint64_t index = 0;
    bool tells = false;
  };
  struct Begun {
    engine::Transferring transfer;  // null: it was refused, or there is nothing to do
    Turn turn;
    std::uint64_t result = 0;  // where it is to be put
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
  // What entries have been added, and a notification behind it.
  void begin_batch(const std::optional<engine::Notification>& notification = {});
  engine::Transferring call_batch(const std::optional<engine::Notification>& notification);
  void give_up(const Turn& turn);
  void finish(Begun& first) noexcept;
  void fail(std::string_view why) noexcept;
  bool failed() const noexcept { return failed_; }

  const ProxyEnds ends_;
  ProxyRing& ring_;
  Batch batch_;
  std::deque<Begun> begun_;
  bool failed_ = false;

  mutable Mutex<Rank::proxy_calls> mutex_;  // guards the next
  std::string error_;
};

}  // namespace zerohop::gda
