// A hand-made peer: connected by the rules, it then sends what no Endpoint sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "../fuzz/stranger.hpp"
#include "couple.hpp"
#include "soft_side.hpp"

namespace zerohop::testing {

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

}  // namespace zerohop::testing
