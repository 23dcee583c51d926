// Hand-made peers: one that claims the id of another, and one that answers and asks for checksums
// as no Endpoint does.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../fuzz/stranger.hpp"
#include "base/crc32c.hpp"
#include "couple.hpp"
#include "engine/channel/endpoint_key.hpp"
#include "soft_side.hpp"

namespace zerohop::testing {
namespace {

using engine::Channel;
using engine::EndpointKey;
using engine::Hello;
using engine::Memory;
using engine::Notification;
using engine::Peer;
using engine::Prologue;
using engine::RemoteMemory;

inline constexpr std::uint32_t kSlots = 4;  // for messages; none is ever reported consumed
inline constexpr std::size_t kSlotNbytes = 4096;
inline constexpr std::size_t kSlotsBegin = 1 << 15;  // in the buffer of its Side; data lies before

// A queue pair with writable memory, and a control connection.
class ByHand {
 public:
  explicit ByHand(engine::Endpoint& endpoint, engine::Hello hello = {},
                  fuzz::Key key = fuzz::Stranger::make_key())
      : stranger(fuzz::Stranger::dial(endpoint.address(), std::move(key))) {
    const Address own = side.address();
    stranger.hear_until([] { return true; });
    hello.id = stranger.id();
    if (hello.name.empty()) hello.name = "by hand";
    hello.queue_pairs.push_back(
        {.number = own.number, .psn = own.psn, .gid = own.gid, .mtu = IBV_MTU_4096});
    hello.receive_slots = kSlots;
    hello.slot_nbytes = kSlotNbytes;
    stranger.greet(hello);
    stranger.hear_until([&] { return stranger.hello() != nullptr; });
    REQUIRE(stranger.hello() != nullptr);
    const rdma::QueuePairAddress& other = stranger.hello()->queue_pairs.front();
    side.connect({other.number, other.psn, other.gid});
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      side.receive(i, kSlotsBegin + i * kSlotNbytes, kSlotNbytes);
    }
    stranger.say(engine::Ready{});
    peer = endpoint.accept(soon());
  }

  engine::RemoteMemory byte(std::size_t at) const {
    engine::RemoteMemory memory;
    memory.endpoint = stranger.id();
    memory.layout = Layout::bytes(side.at(at), 1);
    memory.rkeys[0] = side.mr->rkey;
    memory.access = engine::kRemoteRead | engine::kRemoteWrite;
    memory.begin = side.at(0);
    memory.end = side.at(kSlotsBegin);
    memory.device = "cpu";
    return memory;
  }
  // Waits for that question, of one part, and answers with a checksum.
  void answer(std::uint64_t request, std::uint32_t sum) {
    stranger.hear_until([&] { return asked(request) != nullptr; });
    REQUIRE(asked(request) != nullptr);
    stranger.say(engine::SummedUp{.request = request, .sums = {sum}, .refusal = {}});
  }
  const engine::SumUp* asked(std::uint64_t request) const {
    return stranger.find<engine::SumUp>([&](const auto& m) { return m.request == request; });
  }

  Side side;
  fuzz::Stranger stranger;
  std::shared_ptr<engine::Peer> peer;
};

// --- impostors ---

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
    CHECK(contains(bye->reason, "does not prove that it is the endpoint"));
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

// --- checksums ---

engine::EndpointOptions checked(const char* name) {
  engine::EndpointOptions chosen = options(name);
  chosen.integrity = true;
  chosen.timeout = 300.0;  // longer than the test may take
  return chosen;
}

TEST_CASE("repeated requests for checksums of memory never shared end the connection") {
  constexpr std::uint64_t kMost = 64;
  engine::Endpoint endpoint(checked("asked"));
  const Memory memory = host_array(endpoint, {1});
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
  const std::string why =
      message_of<PeerLost>([&] { (void)guesser.peer->notify({.slot = 1, .value = 1}); });
  CHECK(contains(why, "it has asked 64 times for checksums of memory"));
}

TEST_CASE("requests for checksums of shared memory are answered every time") {
  engine::Endpoint endpoint(checked("asked"));
  const Memory memory = host_array(endpoint, {1});
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
  const Memory source = host_array(endpoint, {1});
  ByHand sluggard(endpoint);
  const auto write_to = [&](Peer& peer, const RemoteMemory& to, std::uint32_t slot) {
    return write(peer, source, to, Notification{slot, 1});
  };
  std::vector<std::shared_ptr<engine::Transfer>> transfers;
  for (std::size_t i = 0; i < kCount; ++i) {
    transfers.push_back(write_to(*sluggard.peer, sluggard.byte(i), 1));
  }
  // No write waits behind a notification: those follow when the questions are answered.
  const auto& posted = sluggard.peer->rails().at(0)->stats().work_requests;
  REQUIRE(eventually([&] { return posted.load() >= kWrites; }));
  const auto* const written = reinterpret_cast<const std::byte*>(source.layout().address);
  const std::uint32_t sum = crc32c(std::span(written, 1));
  for (std::size_t i = 0; i < kCount; ++i) sluggard.answer(i + 1, sum);

  const auto to_honest = endpoint.connect(honest.address().to_bytes(), soon());
  const Memory far = host_array(honest, {1});
  const auto other = write_to(*to_honest, far.remote(), 2);
  finish(other);
  CHECK(honest.wait_notify(2, 1, true, soon()).second == 1);
  CHECK(posted.load() <= kWrites + kSlots);  // the other notifications wait
  sluggard.peer->close(within(0));
  for (const auto& transfer : transfers) REQUIRE(transfer->wait(soon()));
}

}  // namespace
}  // namespace zerohop::testing
