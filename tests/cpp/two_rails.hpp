// Two endpoints of one process on two devices of soft0 each, connected.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "couple.hpp"

namespace zerohop::testing {

inline constexpr std::uint64_t kStripe = 4096;
inline constexpr const char* kTwo = "soft0,soft0@127.0.0.2";

inline engine::EndpointOptions on(const char* devices, const char* name) {
  engine::EndpointOptions chosen = options(name);
  chosen.device = devices;
  chosen.stripe_bytes = kStripe;
  return chosen;
}

struct Rails2 {
  explicit Rails2(const char* of_left = kTwo, const char* of_right = kTwo)
      : left(on(of_left, "left")), right(on(of_right, "right")) {}
  engine::Endpoint left;
  engine::Endpoint right;
  std::shared_ptr<engine::Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<engine::Peer> to_left = right.accept(soon());

  // One of the left endpoint and one of the right.
  std::pair<Memory, Memory> arrays(std::int64_t nbytes) {
    return {host_array(left, {nbytes}), host_array(right, {nbytes})};
  }
};

inline std::uint8_t* data(const engine::Memory& memory) {
  return reinterpret_cast<std::uint8_t*>(memory.layout().address);
}

inline void fill(const engine::Memory& memory, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (std::uint64_t i = 0; i < memory.layout().nbytes(); ++i) {
    data(memory)[i] = static_cast<std::uint8_t>(random());
  }
}

inline bool equal(const engine::Memory& a, const engine::Memory& b) {
  return std::memcmp(data(a), data(b), a.layout().nbytes()) == 0;
}

inline std::uint64_t bytes_out(const engine::Peer& peer, std::size_t rail) {
  return peer.rails().reports().at(rail).stats->bytes_out.load();
}

inline bool serves(const engine::Peer& peer, std::size_t rail) {
  return peer.rails().reports().at(rail).trouble.empty();
}

inline std::string troubles(const engine::Peer& peer) {
  std::string all;
  for (const auto& rail : peer.rails().reports()) all += rail.device + " '" + rail.trouble + "' ";
  return all;
}

// Ends the rail's queue pair like an error of its device.
inline void cut(engine::Peer& peer, engine::RailIndex rail) {
  peer.rails().at(rail)->to_error("the wire was cut");
}

template <typename Ready>
bool wait_for(engine::Peer& peer, Ready ready) {
  return peer.rails().at(0)->poller()->wait(ready, soon());
}

}  // namespace zerohop::testing
