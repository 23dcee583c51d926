// Who waits for a connection to which endpoint. Used by the progress thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "engine/channel/address.hpp"
#include "engine/done.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::engine {

// One call of connect(), until it has a Peer or an error.
struct Attempt {
  explicit Attempt(Address to) : address(std::move(to)) {}
  const Address address;
  std::shared_ptr<Peer> peer;
  std::optional<Failure> error;
  Done done;  // peer or error is set
};

class Dials {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns whether it is the first for its endpoint: then that must be dialled.
  bool add(const std::shared_ptr<Attempt>& attempt);
  // Returns whether it was the last for its endpoint: then nobody waits for that any more.
  bool remove(const std::shared_ptr<Attempt>& attempt);
  bool contains(const EndpointId& id) const { return dials_.contains(id); }
  // Which dial of that endpoint somebody waits for; 0: nobody does. Once nobody has waited, the
  // next call of connect() begins another dial.
  std::uint64_t number(const EndpointId& id) const;

  // Gives everyone who waits for that endpoint the result. Returns whether anyone did.
  bool finish(const EndpointId& id, const std::shared_ptr<Peer>& peer,
              const std::optional<Failure>& error);
  void finish_all(const Failure& error);

  // If anyone still waits for that endpoint then, it is among those due(), once.
  void dial_again(const EndpointId& id, Clock::time_point when);
  std::vector<Address> due(Clock::time_point now);

 private:
  struct Dial {
    std::uint64_t number = 0;
    std::vector<std::shared_ptr<Attempt>> waiting;  // never empty
    Clock::time_point again_at = Clock::time_point::max();
  };
  std::uint64_t last_ = 0;
  std::map<EndpointId, Dial> dials_;
};

}  // namespace zerohop::engine
