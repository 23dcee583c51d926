#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "gda/address.hpp"
#include "gda/opened_way.hpp"
#include "gpu/registered_pages.hpp"

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
  return way;
}

namespace {

// The whole pages that cover those ranges, each once.
std::vector<Extent> whole_pages(std::vector<Extent> ranges) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (Extent& range : ranges) {
    range = {range.begin / page * page, (range.end + page - 1) / page * page};
  }
  std::ranges::sort(ranges, {}, &Extent::begin);
  std::vector<Extent> merged;
  for (const Extent& range : ranges) {
    if (!merged.empty() && range.begin < merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

void map_pages(OpenedWay& opened, const std::vector<Extent>& ranges, gpu::PageKind kind) {
  for (const Extent& pages : whole_pages(ranges)) {
    opened.kept.push_back(std::make_shared<const gpu::RegisteredPages>(
        opened.device, opened.direct, reinterpret_cast<void*>(pages.begin), pages.end - pages.begin,
        "the rings of a queue pair", kind));
  }
}

// The doorbell register of an adapter is I/O memory.
void map_rings(OpenedWay& opened) {
  constexpr std::uint64_t kBlock = device::mlx5::kBlockBytes;
  const device::SendRing& ring = opened.ring->ring;
  const auto range = [](std::uint64_t begin, std::uint64_t nbytes) {
    return Extent{begin, begin + nbytes};
  };
  std::vector<Extent> memory = {
      range(ring.entries, ring.blocks * kBlock), range(ring.record, sizeof(std::uint32_t)),
      range(ring.completions, ring.places * kBlock), range(ring.consumed, sizeof(std::uint32_t)),
      range(opened.ring->results, ring.blocks * sizeof(std::uint64_t))};
  const Extent doorbell = range(ring.doorbell, sizeof(std::uint64_t));
  if (opened.direct->software()) {
    memory.push_back(doorbell);
  } else {
    map_pages(opened, {doorbell}, gpu::PageKind::registers);
  }
  map_pages(opened, memory, gpu::PageKind::memory);
}

std::shared_ptr<const engine::Route> direct_route(const engine::Route& by_device) {
  engine::Route route = by_device;
  route.reason = "kernels write the entries of a queue pair of " + by_device.device +
                 " and ring its doorbell by themselves: " + by_device.reason;
  return std::make_shared<const engine::Route>(std::move(route));
}

}  // namespace

OpenedWay open_direct(const QueueArrays& arrays, const std::optional<double>& timeout,
                      const Deadline& deadline) {
  check_on_gpu(arrays.local);
  engine::DirectReach reach =
      arrays.peer->kernels().direct({&arrays.local, &arrays.remote}, deadline);
  OpenedWay opened{.queue = make_ring_queue(arrays, reach.entries),
                   .ring = describe(reach),
                   .route = direct_route(*reach.entries.route),
                   .device = reach.entries.local->device,
                   .direct = reach.queue_pair};
  opened.queue.notes = reach.slots;
  opened.ring->patience =
      static_cast<std::uint64_t>(timeout.value_or(arrays.endpoint.timeout()) * 1e9);
  opened.kept = {reach.target, reach.queue_pair, reach.entries.local};
  map_rings(opened);
  return opened;
}

}  // namespace zerohop::gda
