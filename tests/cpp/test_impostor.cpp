// An impostor that has the address of an Endpoint, and claims the id of another of its Peers.
#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>

#include "by_hand.hpp"
#include "engine/channel/endpoint_key.hpp"

namespace zerohop::testing {
namespace {

using engine::Channel;
using engine::EndpointKey;
using engine::Hello;
using engine::Prologue;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

Prologue prologue(int number) {
  Prologue made{};
  made.fill(static_cast<std::byte>(number));
  return made;
}

TEST_CASE("a proof holds for its key and its connection alone") {
  const EndpointKey key, other;
  const auto proof = key.prove(prologue(1));
  CHECK(proves(proof, key.id(), prologue(1)));
  CHECK_FALSE(proves(proof, other.id(), prologue(1)));
  CHECK_FALSE(proves(proof, key.id(), prologue(2)));
  auto damaged = proof;
  damaged.signature[0] ^= std::byte{1};
  CHECK_FALSE(proves(damaged, key.id(), prologue(1)));
  CHECK_FALSE(proves(engine::IdProof{}, key.id(), prologue(1)));
}

// A couple, and what somebody who knows both addresses can send to the right one.
struct Attacked : Couple {
  Hello of_left() const {
    Hello hello;
    hello.id = left.address().id;
    hello.name = "left";
    hello.queue_pairs.resize(1);
    hello.queue_pairs[0].number = 1;
    hello.queue_pairs[0].mtu = IBV_MTU_4096;
    hello.receive_slots = kSlots;
    hello.slot_nbytes = kSlotNbytes;
    hello.established = 0xffff;  // more than the right one has seen
    return hello;
  }
  void check_refused(fuzz::Stranger& impostor) {
    impostor.hear_until([&] { return impostor.closed(); });
    const auto* const bye = impostor.find<engine::Bye>([](const engine::Bye&) { return true; });
    REQUIRE(bye != nullptr);
    CHECK(bye->reason.find("does not prove that it is the endpoint") != std::string::npos);
    CHECK(impostor.hello() == nullptr);
    CHECK(to_left->alive());
    CHECK(to_right->alive());
    to_right->notify({.slot = 1, .value = 7});
    CHECK(right.wait_notify(1, 1, true, soon()).second == 7);
    CHECK(right.peers().size() == 1);
  }
};

TEST_CASE_FIXTURE(Attacked, "a claim of a Peer's id without a proof is refused") {
  auto impostor = fuzz::Stranger::dial(right.address());
  SUBCASE("none at all") { impostor.say(of_left()); }
  SUBCASE("of its own id") { impostor.greet(of_left()); }
  check_refused(impostor);
}

TEST_CASE_FIXTURE(Attacked, "a proof received from a Peer cannot be reused") {
  const EndpointKey key;
  const UniqueFd listener = engine::listen_tcp("127.0.0.1");
  engine::Address own = key.address();
  own.host = "127.0.0.1";
  own.port = engine::local_port(listener.get());
  std::thread caller([&] {
    try {
      left.connect(own.to_bytes(), soon());
    } catch (const Error&) {  // it gets no answer
    }
  });
  pollfd waited{.fd = listener.get(), .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&waited, 1, 20'000) == 1);
  std::optional<fuzz::Stranger> shown;
  shown.emplace(Channel::accept(accept_connection(listener.get()), own.secret));
  shown->hear_until([&] { return shown->hello() != nullptr; });
  REQUIRE(shown->hello() != nullptr);
  Hello copied = of_left();
  copied.proof = shown->hello()->proof;
  auto impostor = fuzz::Stranger::dial(right.address());
  impostor.say(copied);
  check_refused(impostor);
  shown.reset();
  caller.join();
}

TEST_CASE("a free id is nobody's either") {
  engine::Endpoint endpoint(options("alone"));
  auto impostor = fuzz::Stranger::dial(endpoint.address());
  Hello hello;
  hello.id = EndpointKey().id();
  impostor.greet(hello);
  impostor.hear_until([&] { return impostor.closed(); });
  CHECK(impostor.hello() == nullptr);
  CHECK(endpoint.peers().empty());
}

TEST_CASE("whose connection is lost on its side alone takes its own place") {
  engine::Endpoint endpoint(options("asked"));
  const fuzz::Key key = fuzz::Stranger::make_key();
  ByHand first(endpoint, {}, key);
  Hello later;
  later.established = 1;
  const ByHand second(endpoint, later, key);
  CHECK(first.peer != second.peer);
  CHECK_FALSE(first.peer->alive());
  CHECK(second.peer->alive());
}

TEST_CASE("endless requests for kernels' queue pairs hold few descriptors") {
  constexpr std::size_t kMost = 128;
  constexpr std::uint64_t kAsked = 600;
  engine::Endpoint endpoint(options("asked"));
  std::size_t before = 0;
  {
    ByHand greedy(endpoint);
    before = open_descriptors();
    const Address own = greedy.side.address();
    std::size_t opened = 0;
    for (std::uint64_t request = 1; request <= kAsked; ++request) {
      engine::OpenDirect asked{.request = request, .rail = 0, .queue_pair = {}};
      asked.queue_pair = {.number = 1 + static_cast<std::uint32_t>(request), .gid = own.gid};
      asked.queue_pair.mtu = request % 3 == 0 ? 0 : IBV_MTU_4096;  // no queue pair has that
      greedy.stranger.say(asked);
      const engine::DirectOpened* answer = nullptr;
      greedy.stranger.hear_until([&] {
        answer = greedy.stranger.find<engine::DirectOpened>(
            [&](const auto& m) { return m.request == request; });
        return answer != nullptr;
      });
      REQUIRE(answer != nullptr);
      if (answer->refusal.empty()) ++opened;
    }
    CHECK(opened == kMost);
    // One socket here for each, and one that the other side accepted.
    CHECK(open_descriptors() <= before + 2 * kMost);
  }
  CHECK(eventually([&] { return open_descriptors() < before; }));
}

}  // namespace
}  // namespace zerohop::testing
