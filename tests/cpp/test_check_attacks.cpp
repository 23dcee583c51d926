// A hand-made peer that answers and asks for checksums as no Endpoint does.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/crc32c.hpp"
#include "by_hand.hpp"
#include "couple.hpp"

namespace zerohop::testing {
namespace {

using engine::Memory;
using engine::Notification;
using engine::Peer;
using engine::RemoteMemory;

const DType kOneByte{.code = kDTypeUInt, .bits = 8, .lanes = 1};

engine::EndpointOptions checked(const char* name) {
  engine::EndpointOptions chosen = options(name);
  chosen.integrity = true;
  chosen.timeout = 300.0;  // longer than the test may take
  return chosen;
}

Memory one_byte(engine::Endpoint& endpoint) {
  const std::int64_t nbytes = 1;
  return endpoint.empty(std::span(&nbytes, 1), kOneByte);
}

TEST_CASE("repeated requests for checksums of memory never shared end the connection") {
  constexpr std::uint64_t kMost = 64;
  engine::Endpoint endpoint(checked("asked"));
  const Memory memory = one_byte(endpoint);
  ByHand guesser(endpoint);
  RemoteMemory guess = memory.remote();
  const auto ask = [&](std::uint64_t request) {
    guesser.stranger.say(engine::SumUp{.request = request, .parts = {{guess.to_bytes(), 0, 1}}});
    const engine::SummedUp* answer = nullptr;
    guesser.stranger.hear_until([&] {
      answer = guesser.stranger.find<engine::SummedUp>(
          [&](const auto& m) { return m.request == request; });
      return answer != nullptr;
    });
    return answer;
  };
  for (std::uint64_t request = 1; request <= kMost; ++request) {
    ++guess.rkeys[0];
    const engine::SummedUp* const answer = ask(request);
    REQUIRE(answer != nullptr);
    CHECK(answer->status == IBV_WC_REM_ACCESS_ERR);
  }
  CHECK(guesser.peer->alive());
  CHECK(ask(kMost + 1) == nullptr);
  CHECK(guesser.stranger.closed());
  REQUIRE(eventually([&] { return !guesser.peer->alive(); }));
  std::string why;
  try {
    (void)guesser.peer->notify({.slot = 1, .value = 1});
  } catch (const PeerLost& lost) {
    why = lost.what();
  }
  CHECK(why.find("it has asked 64 times for checksums of memory") != std::string::npos);
}

TEST_CASE("requests for checksums of shared memory are answered every time") {
  engine::Endpoint endpoint(checked("asked"));
  const Memory memory = one_byte(endpoint);
  ByHand reader(endpoint);
  for (std::uint64_t request = 1; request <= 200; ++request) {
    reader.stranger.say(
        engine::SumUp{.request = request, .parts = {{memory.remote().to_bytes(), 0, 1}}});
    reader.stranger.hear_until([&] {
      return reader.stranger.find<engine::SummedUp>(
          [&](const auto& m) { return m.request == request && m.status == 0; });
    });
  }
  CHECK_FALSE(reader.stranger.closed());
}

TEST_CASE("a peer that takes no notification holds up no checks, its own or those of others") {
  constexpr std::size_t kCount = 400;  // more than a queue pair may have waiting, and than kSlots
  constexpr std::size_t kWrites = 2 * kCount;  // work requests: each is read back
  engine::Endpoint endpoint(checked("held up"));
  engine::Endpoint honest(checked("honest"));
  const Memory source = one_byte(endpoint);
  ByHand sluggard(endpoint);
  const auto write = [&](Peer& peer, const RemoteMemory& to, std::uint32_t slot) {
    const Peer::Pair pair{&source, &to};
    return peer.write({&pair, 1}, {.notify = Notification{slot, 1}, .require = {}, .timeout = {}});
  };
  std::vector<std::shared_ptr<engine::Transfer>> transfers;
  for (std::size_t i = 0; i < kCount; ++i) {
    transfers.push_back(write(*sluggard.peer, sluggard.byte(i), 1));
  }
  // No write waits behind a notification: those follow when the questions are answered.
  const auto& posted = sluggard.peer->rails().path(0)->stats().work_requests;
  REQUIRE(eventually([&] { return posted.load() >= kWrites; }));
  const auto* const written = reinterpret_cast<const std::byte*>(source.layout().address);
  const std::uint32_t sum = crc32c(std::span(written, 1));
  for (std::size_t i = 0; i < kCount; ++i) sluggard.answer(i + 1, sum);

  const auto to_honest = endpoint.connect(honest.address().to_bytes(), soon());
  const Memory far = one_byte(honest);
  const auto other = write(*to_honest, far.remote(), 2);
  REQUIRE(other->wait(soon()));
  (void)other->result();
  CHECK(honest.wait_notify(2, 1, true, soon()).second == 1);
  CHECK(posted.load() <= kWrites + kSlots);  // the other notifications wait
  sluggard.peer->close(within(0));
  for (const auto& transfer : transfers) REQUIRE(transfer->wait(soon()));
}

}  // namespace
}  // namespace zerohop::testing
