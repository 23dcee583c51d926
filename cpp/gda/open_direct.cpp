#include <utility>

#include "gda/address.hpp"
#include "gda/opened_way.hpp"
#include "gpu/write_order.hpp"

namespace zerohop::gda {

device::RingWay describe(const engine::DirectReach& reach) {
  const mlx5dv_qp& sends = reach.queue_pair->sends();
  const mlx5dv_cq& completions = reach.queue_pair->completions();
  device::RingWay way;
  way.ring = {.entries = address_of(sends.sq.buf),
              .record = address_of(&sends.dbrec[MLX5_SND_DBR]),
              .doorbell = address_of(sends.bf.reg),
              .completions = address_of(completions.buf),
              .consumed = address_of(&completions.dbrec[0]),
              .state = 0,
              .queue_pair = reach.queue_pair->number(),
              .blocks = sends.sq.wqe_cnt,
              .places = completions.cqe_cnt};
  way.results = address_of(reach.queue_pair->results().ring());
  way.results_key = reach.queue_pair->results_key();
  way.local_key = reach.local_key;
  way.remote_key = reach.remote_key;
  way.notes_key = reach.slots_key;
  way.flushes = reach.flushes ? 1 : 0;
  return way;
}

namespace {

// Rings of several queues may share pages: records of doorbells do, and registers.
void map_rings(OpenedWay& opened, const Deadline& deadline) {
  constexpr std::uint64_t kBlock = device::mlx5::kBlockBytes;
  device::SendRing& ring = opened.ring->ring;
  const auto map = [&](std::uint64_t begin, std::uint64_t nbytes, gpu::PageUse use) {
    if (opened.direct->on_gpu(begin)) return;  // that of the GPU that runs the kernels
    map_pages(opened, opened.direct, {begin, begin + nbytes}, use, deadline);
  };
  map(ring.entries, ring.blocks * kBlock, gpu::PageUse::write);
  map(ring.record, sizeof(std::uint32_t), gpu::PageUse::write);
  map(ring.completions, ring.places * kBlock, gpu::PageUse::write);
  map(ring.consumed, sizeof(std::uint32_t), gpu::PageUse::write);
  map(opened.ring->results, (ring.blocks + 1) * sizeof(std::uint64_t), gpu::PageUse::write);
  // That of an adapter is no memory, and the GPU may have another address for it.
  const bool memory = opened.direct->software();
  map(ring.doorbell, sizeof(std::uint64_t), memory ? gpu::PageUse::write : gpu::PageUse::registers);
  if (!memory) ring.doorbell = gpu::address_on(*opened.device, ring.doorbell);
}

std::shared_ptr<const engine::Route> direct_route(const engine::Route& by_device,
                                                  const engine::DirectQueuePair& pair) {
  engine::Route route = by_device;
  route.reason = "kernels write the entries of a queue pair of " + by_device.device +
                 " and ring its doorbell by themselves (" + pair.places() +
                 "): " + by_device.reason;
  return std::make_shared<const engine::Route>(std::move(route));
}

}  // namespace

OpenedWay open_direct(const QueueArrays& arrays, const QueueOptions& options,
                      const Deadline& deadline) {
  check_on_gpu(arrays.local);
  engine::DirectReach reach =
      arrays.peer->kernels().direct({&arrays.local, &arrays.remote}, options.places, deadline);
  OpenedWay opened{.queue = make_ring_queue(arrays, reach.entries),
                   .ring = describe(reach),
                   .route = direct_route(*reach.entries.route, *reach.queue_pair),
                   .device = reach.entries.local->device,
                   .direct = reach.queue_pair};
  opened.queue.notes = reach.slots;
  const bool two_paths = reach.queue_pair->has_second_path();
  const gpu::WriteOrder order = gpu::write_order(opened.device->facts(), two_paths);
  opened.ring->dumps = order != gpu::WriteOrder::kept ? 1 : 0;
  opened.ring->patience =
      static_cast<std::uint64_t>(options.timeout.value_or(arrays.endpoint.timeout()) * 1e9);
  opened.kept = {reach.target, reach.queue_pair, reach.entries.local};
  map_rings(opened, deadline);
  return opened;
}

}  // namespace zerohop::gda
