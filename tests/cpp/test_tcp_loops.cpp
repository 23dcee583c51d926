#include <doctest/doctest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "engine/core/tcp_loops.hpp"
#include "wiretap.hpp"

using zerohop::Deadline;
using zerohop::engine::TcpLoops;
using zerohop::testing::socket_pair;
using namespace std::chrono_literals;

namespace {

std::vector<std::byte> pattern(std::size_t nbytes) {
  std::vector<std::byte> bytes(nbytes);
  for (std::size_t i = 0; i < nbytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

}  // namespace

TEST_CASE("the ball of a ping-pong comes back unchanged, and every round is timed") {
  for (const auto spin : {0us, 1000us}) {
    for (const std::size_t nbytes : {std::size_t{8}, std::size_t{3} << 20}) {
      auto [near, far] = socket_pair();
      const auto deadline = Deadline::after(20s);
      std::vector<double> near_times(20, -1.0), far_times(20, -1.0);
      std::vector<std::byte> near_ball = pattern(nbytes), far_ball(nbytes);
      std::thread other([&, fd = far.get()] {
        TcpLoops(fd, spin).ping_pong(far_ball, far_times, false, deadline);
      });
      TcpLoops(near.get(), spin).ping_pong(near_ball, near_times, true, deadline);
      other.join();
      CHECK(near_ball == pattern(nbytes));
      CHECK(far_ball == pattern(nbytes));
      CHECK(std::ranges::all_of(near_times, [](double time) { return time > 0; }));
      CHECK(std::ranges::all_of(far_times, [](double time) { return time > 0; }));
    }
  }
}

TEST_CASE("a stream is over for the sender when the receiver has it") {
  auto [near, far] = socket_pair();
  const auto deadline = Deadline::after(20s);
  std::vector<std::byte> arrived(1 << 20);
  std::thread other([&, fd = far.get()] { TcpLoops(fd, 50us).stream_in(arrived, 9, deadline); });
  TcpLoops(near.get(), 50us).stream_out(pattern(1 << 20), 9, deadline);
  other.join();
  CHECK(arrived == pattern(1 << 20));
}

TEST_CASE("a closed connection and a silent one end the loops") {
  auto [near, far] = socket_pair();
  std::vector<std::byte> ball(8);
  std::vector<double> times(1);
  const TcpLoops loops(near.get(), 10us);
  CHECK_THROWS_AS(loops.ping_pong(ball, times, true, Deadline::after(50ms)),
                  zerohop::TransferTimeout);
  far.reset();
  CHECK_THROWS_AS(loops.ping_pong(ball, times, false, Deadline::after(20s)), zerohop::PeerLost);
  CHECK_THROWS_AS(loops.stream_out(ball, 1, Deadline::after(20s)), zerohop::PeerLost);
}
