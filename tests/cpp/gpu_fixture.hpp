// A fake GPU's memory, a fake adapter, and the registrations between the two.
#pragma once

#include <memory>
#include <string>

#include "base/error.hpp"
#include "engine/memory/gpu_registrations.hpp"
#include "fake_cuda.hpp"
#include "fake_verbs.hpp"
#include "reported.hpp"

namespace zerohop::engine {

using gpu::MemoryKind;
using testing::contains;
using testing::FakeCuda;
using testing::FakeVerbs;
using Way = RegistrationWay;
using Demand = RegistrationDemand;

constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kMiB = 1 << 20;
inline const HostFacts kHost{.kernel = 6001, .peermem = ""};
inline const HostFacts kHostWithPeermem{.kernel = 6001, .peermem = "nvidia_peermem"};

inline Adapter open_adapter(const FakeVerbs& verbs, bool mlx5 = false) {
  return {rdma::ProtectionDomain::create(rdma::Device::open(verbs.table(), "fake0")),
          mlx5 ? verbs.mlx5dv() : nullptr};
}

struct GpuFixture {
  FakeCuda cuda;
  FakeVerbs verbs;
  GpuOptions options;
  std::unique_ptr<GpuRegistrations> registrations;

  GpuFixture() {
    verbs.device.max_mr_size = 1 << 30;
    cuda.add(MemoryKind::plain, kBase, kMiB);
    open();
  }
  void open(const HostFacts& host = kHost, bool mlx5 = false) {
    registrations.reset();
    registrations =
        std::make_unique<GpuRegistrations>(open_adapter(verbs, mlx5), cuda.table(), host, options);
  }
  GpuRegion get(std::uint64_t begin, std::uint64_t nbytes, Demand demand = Demand::automatic,
                bool shared = true) {
    return registrations->find_or_create(
        {.extent = {begin, begin + nbytes}, .writable = true, .shared = shared, .demand = demand});
  }
  std::string refusal(std::uint64_t begin, std::uint64_t nbytes, Demand demand) {
    return testing::message_of<RegistrationError>([&] { get(begin, nbytes, demand); });
  }
  RegionCache::Stats stats() const { return registrations->stats(); }
};

}  // namespace zerohop::engine
