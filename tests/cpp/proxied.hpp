// A queue between two endpoints whose entries the proxy executes, driven by CPU threads that run
// kernel code.
#pragma once

#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "couple.hpp"
#include "cpu_words.hpp"
#include "gda/proxy.hpp"

namespace zerohop::testing {

struct Proxied : Couple {
  using Calls = device::RingCalls<CpuWords>;
  static constexpr std::int64_t kNbytes = 1 << 22;

  engine::Memory ours = left.empty({{kNbytes}}, DType{});
  engine::Memory theirs = right.empty({{kNbytes}}, DType{});
  std::unique_ptr<gda::Proxy> proxy = std::make_unique<gda::Proxy>(ends());
  device::RingState state;
  std::vector<std::uint32_t> claims = std::vector<std::uint32_t>(gda::ProxyRing::kBlocks);
  device::Queue queue{.local = ours.layout().address,
                      .local_nbytes = kNbytes,
                      .remote = theirs.layout().address,
                      .remote_nbytes = kNbytes,
                      .notes = gda::ProxyCalls::kNotes};
  device::RingWay way = ring_way();
  Calls calls{way};

  gda::ProxyEnds ends() {
    constexpr std::int64_t kValues = gda::ProxyRing::kBlocks * gda::kValueNbytes;
    return {.peer = to_right,
            .local = ours,
            .remote = theirs.remote(),
            .values = left.empty({{kValues}}, DType{})};
  }
  device::RingWay ring_way() {
    device::RingWay made = proxy->ring().describe();
    made.ring.state = reinterpret_cast<std::uint64_t>(&state);
    made.claims = reinterpret_cast<std::uint64_t>(claims.data());
    made.local = queue.local;
    made.remote = queue.remote;
    made.notes = queue.notes;
    made.patience = static_cast<std::uint64_t>(kTimeout * 1e9);
    return made;
  }
  static std::uint8_t* bytes(const engine::Memory& memory) {
    return reinterpret_cast<std::uint8_t*>(memory.layout().address);
  }
};

}  // namespace zerohop::testing
