// The calls of connect() that wait for each endpoint. Used by the progress thread only.
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

  // Returns whether it is the first for its endpoint, which must then be dialled.
  bool add(const std::shared_ptr<Attempt>& attempt);
  // Returns whether it was the last for its endpoint, so that no caller waits for it any more.
  bool remove(const std::shared_ptr<Attempt>& attempt);
  bool contains(const EndpointId& id) const { return dials_.contains(id); }
  // The number of the dial that callers wait for at that endpoint; 0: none waits. If none has
  // waited for a time, the next connect() begins another dial.
  std::uint64_t number(const EndpointId& id) const;

  // Gives the result to all callers that wait for that endpoint. Returns whether there were any.
  bool finish(const EndpointId& id, const std::shared_ptr<Peer>& peer,
              const std::optional<Failure>& error);
  void finish_all(const Failure& error);

  // At `when`, due() returns the endpoint once if a caller still waits for it.
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
