// Two endpoints of one process on soft0, connected.
#pragma once

#include <memory>

#include "engine/core/endpoint.hpp"

namespace zerohop::testing {

constexpr double kTimeout = 20.0;  // seconds, for what must happen; a failing test ends then

inline Deadline within(double seconds) { return Deadline::after(Deadline::Seconds(seconds)); }
inline Deadline soon() { return within(kTimeout); }

inline engine::EndpointOptions options(const char* name) {
  engine::EndpointOptions chosen;
  chosen.p2p = false;  // the tests are about queue pairs
  chosen.device = "soft0";
  chosen.name = name;
  chosen.timeout = kTimeout;
  return chosen;
}

struct Couple {
  engine::Endpoint left{options("left")};
  engine::Endpoint right{options("right")};
  std::shared_ptr<engine::Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<engine::Peer> to_left = right.accept(soon());
};

}  // namespace zerohop::testing
