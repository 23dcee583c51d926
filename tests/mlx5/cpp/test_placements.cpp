// Queue pairs that kernels drive, with their rings in the memory of the host and of a GPU: made by
// DEVX of libmlx5. CPU threads stand for the kernels, and a fake GPU's memory is shared by memfd.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "driver/cuda_constants.hpp"
#include "gda/device_queue.hpp"
#include "gpu_couple.hpp"
#include "kernel_ring.hpp"

namespace zerohop::testing {
namespace {

using engine::RingPlace;
using gda::DeviceQueue;

engine::EndpointOptions on_adapter(const char* name) {
  engine::EndpointOptions chosen = options(name);
  chosen.device = "mlx5sim0";
  chosen.queue_pair.traffic_class = 0x6a;
  return chosen;
}

struct Placements : GpuCouple {
  explicit Placements(bool exports_map = true)
      : GpuCouple(on_adapter("left"), on_adapter("right")), maps(cuda.exports_map = exports_map) {}

  const bool maps;  // else memory of the GPU is registered by its address
  Memory ours = array(left, {100});
  Memory theirs = array(right, {100});
  Memory on_host = right.empty({{100}}, kByte);

  std::unique_ptr<DeviceQueue> queue(const Memory& target, engine::RingPlaces places) {
    return std::make_unique<DeviceQueue>(
        gda::QueueArrays{left, to_right, ours, target.remote()},
        DeviceQueue::Options{.way = gda::WantedWay::direct, .places = places}, soon());
  }
  device::RingWay way_of(const DeviceQueue& made) {
    const Bytes bytes = cuda.copies.read(made.value().ring, sizeof(device::RingWay));
    device::RingWay way;
    std::memcpy(&way, bytes.data(), sizeof way);
    return way;
  }
  bool on_gpu(std::uint64_t address) { return cuda.copies.at(address) != nullptr; }

  // Puts, gets, atomics and notifications through it.
  void works(const DeviceQueue& made, const Memory& target) {
    const KernelRing ring(way_of(made), cuda.copies);
    device::Ticket ticket;
    for (unsigned round = 1; round < 200; ++round) {
      put(ours, counted(100, round));
      REQUIRE(ring.calls.put_notify(0, 0, 100, 4, round, ticket) == device::Status::ok);
      REQUIRE(right.wait_notify(4, 1, true, soon()).second == round);
      REQUIRE(get(target) == counted(100, round));
      REQUIRE(ring.calls.wait(ticket, ring.way.patience) == device::Status::ok);
    }
    put(target, counted(100, 7));
    REQUIRE(ring.calls.get(0, 0, 100, ticket) == device::Status::ok);
    REQUIRE(ring.calls.wait(ticket, ring.way.patience) == device::Status::ok);
    CHECK(get(ours) == counted(100, 7));
    std::uint64_t old = 0;
    REQUIRE(ring.calls.fetch_add(0, 1, old) == device::Status::ok);
    CHECK(std::memcmp(&old, counted(100, 7).data(), sizeof old) == 0);
    turn(ring);
    CHECK(made.error().empty());
  }
};

// As with driver 580, whose dma-bufs no processor can map.
struct ByAddress : Placements {
  ByAddress() : Placements(false) {}
};

void check_all_placements(Placements& on) {
  for (const RingPlace sends : {RingPlace::host, RingPlace::gpu}) {
    for (const RingPlace completions : {RingPlace::host, RingPlace::gpu}) {
      for (const Memory* target : {&on.theirs, &on.on_host}) {
        const auto made = on.queue(*target, {sends, completions});
        const device::RingWay way = on.way_of(*made);
        CHECK(on.on_gpu(way.ring.entries) == (sends == RingPlace::gpu));
        CHECK(on.on_gpu(way.ring.completions) == (completions == RingPlace::gpu));
        on.works(*made, *target);
      }
    }
  }
}

TEST_CASE_FIXTURE(Placements, "all four placements carry data from GPU to GPU and to the host") {
  CHECK(ours.choice()->way == engine::RegistrationWay::dmabuf);
  check_all_placements(*this);
}

TEST_CASE_FIXTURE(ByAddress, "all four placements work without dma-bufs, by nvidia-peermem") {
  CHECK(ours.choice()->way == engine::RegistrationWay::peermem);
  CHECK(contains(ours.choice()->reason, "through nvidia_peermem"));
  CHECK(contains(ours.choice()->reason, "not through dma-buf: mlx5sim0 does not register"));
  check_all_placements(*this);
}

TEST_CASE_FIXTURE(Placements, "records lie beside their rings, and old values beside completions") {
  const auto made = queue(theirs, {RingPlace::host, RingPlace::gpu});
  CHECK(contains(made->route().reason, "its send queue lies in the host's memory"));
  CHECK(contains(made->route().reason, "its completion queue in the GPU's"));
  const device::RingWay way = way_of(*made);
  CHECK(!on_gpu(way.ring.record));
  CHECK(on_gpu(way.ring.consumed));
  CHECK(on_gpu(way.results));
}

TEST_CASE_FIXTURE(Placements, "a refused entry is found in a completion queue on the GPU") {
  auto gone = std::make_unique<Memory>(right.empty({{100}}, kByte));
  const auto made = queue(*gone, {RingPlace::gpu, RingPlace::gpu});
  const KernelRing ring(way_of(*made), cuda.copies);
  gone.reset();
  device::Ticket ticket;
  REQUIRE(ring.calls.put(0, 0, 100, ticket) == device::Status::ok);
  CHECK(ring.calls.wait(ticket, ring.way.patience) == device::Status::failed);
  CHECK(contains(made->error(), "IBV_WC_REM_ACCESS_ERR (syndrome 19"));
}

TEST_CASE_FIXTURE(Placements,
                  "what the GPU does not export is refused, and the host does without") {
  cuda.export_error = driver::kCudaErrorNotSupported;  // from now on
  CHECK_THROWS_AS(queue(on_host, {RingPlace::gpu, RingPlace::host}), CudaError);
  works(*queue(on_host, {}), on_host);
}

}  // namespace
}  // namespace zerohop::testing
