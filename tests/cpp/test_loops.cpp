// The benchmark's loops over Endpoints and Peers: messages, notifications and waits for them.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "couple.hpp"
#include "engine/core/loops.hpp"

namespace zerohop::engine {
namespace {

using testing::Couple;
using testing::soon;

constexpr std::array<std::int64_t, 1> kShape{64};
constexpr DType kBytes{kDTypeUInt, 8, 1};

bool all_positive(const std::vector<double>& seconds) {
  return std::ranges::all_of(seconds, [](double each) { return each > 0; });
}

std::uint8_t& first_byte(const Memory& memory) {
  return *reinterpret_cast<std::uint8_t*>(memory.layout().address);
}

TEST_CASE_FIXTURE(Couple, "a ping-pong of messages moves the ball and times both ends") {
  const Memory ball = left.empty(kShape, kBytes), caught = left.empty(kShape, kBytes);
  const Memory back = right.empty(kShape, kBytes), landed = right.empty(kShape, kBytes);
  first_byte(ball) = 5;
  first_byte(back) = 6;
  std::vector<double> first(50), second(50);
  std::thread partner(
      [&] { ping_pong(MessagePingPong{*to_left, back, landed, false}, second, soon()); });
  ping_pong(MessagePingPong{*to_right, ball, caught, true}, first, soon());
  partner.join();
  CHECK(all_positive(first));
  CHECK(all_positive(second));
  CHECK(first_byte(landed) == 5);
  CHECK(first_byte(caught) == 6);
}

TEST_CASE_FIXTURE(Couple, "a ball that nobody sends back ends the loop") {
  const Memory ball = left.empty(kShape, kBytes), caught = left.empty(kShape, kBytes);
  std::vector<double> seconds(1);
  CHECK_THROWS_AS(
      ping_pong(MessagePingPong{*to_right, ball, caught, true}, seconds, testing::within(0.05)),
      TransferTimeout);
}

TEST_CASE_FIXTURE(Couple, "notifications that are timed arrive") {
  std::vector<double> seconds(10);
  notify_costs(*to_right, 9, 16, seconds, soon());
  CHECK(all_positive(seconds));
  CHECK(right.wait_notify(9, 1, true, soon()).second == 1);
}

TEST_CASE_FIXTURE(Couple, "waits that are timed find what is there, and take it") {
  std::vector<double> seconds(10);
  wait_costs(left, 40, 16, seconds, soon());
  CHECK(all_positive(seconds));
  for (std::uint32_t slot = 40; slot < 56; ++slot) CHECK(left.peek_notify(slot) == 0);
}

}  // namespace
}  // namespace zerohop::engine
