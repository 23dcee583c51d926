#include <stdexcept>
#include <utility>

#include "engine/notify/board.hpp"
#include "gda/opened_way.hpp"
#include "gpu/registered_pages.hpp"

namespace zerohop::gda {
namespace {

std::shared_ptr<const engine::Route> proxy_route(const engine::Route& by_device,
                                                 const std::string& not_mapped) {
  engine::Route route = by_device;
  route.reason =
      "a thread of this process carries out what kernels ask for (proxy): " + by_device.reason;
  if (!not_mapped.empty()) route.reason += "; " + not_mapped;
  return std::make_shared<const engine::Route>(std::move(route));
}

void map_ring(OpenedWay& opened) {
  for (const std::span<std::byte> pages : opened.proxy->ring().pages()) {
    opened.kept.push_back(std::make_shared<const gpu::RegisteredPages>(
        opened.device, opened.proxy, pages.data(), pages.size(), "the ring of a device queue"));
  }
}

}  // namespace

void check_on_gpu(const engine::Memory& local) {
  if (!local.on_host()) return;
  throw std::invalid_argument("the local array of a device queue must lie on a GPU");
}

device::Queue make_ring_queue(const QueueArrays& arrays, const engine::EntryReach& reach) {
  device::Queue queue;
  queue.local = arrays.local.layout().address;
  queue.local_nbytes = arrays.local.layout().nbytes();
  queue.remote = arrays.remote.layout.address;
  queue.remote_nbytes = arrays.remote.layout.nbytes();
  queue.slots = engine::Board::kSlots;
  queue.rights = (reach.puts ? device::kPut : 0U) | (reach.gets ? device::kGet : 0U) |
                 (reach.atomics ? device::kAtomics : 0U);
  queue.way = device::Way::ring;
  return queue;
}

OpenedWay open_proxy(const QueueArrays& arrays, const std::optional<double>& timeout,
                     const std::string& not_mapped) {
  const auto& [endpoint, peer, local, remote] = arrays;
  check_on_gpu(local);
  const engine::EntryReach reach = peer->kernels().entries({&local, &remote});
  OpenedWay opened{.queue = make_ring_queue(arrays, reach),
                   .route = proxy_route(*reach.route, not_mapped),
                   .device = reach.local->device};
  opened.queue.notes = ProxyCalls::kNotes;
  constexpr std::int64_t kValues = ProxyRing::kBlocks * kValueNbytes;
  opened.proxy =
      std::make_shared<const Proxy>(ProxyEnds{.peer = peer,
                                              .local = local,
                                              .remote = remote,
                                              .values = endpoint.empty({{kValues}}, DType{})});
  opened.kept = {opened.proxy, reach.local};
  map_ring(opened);
  opened.ring = opened.proxy->ring().describe();
  opened.ring->patience = static_cast<std::uint64_t>(timeout.value_or(endpoint.timeout()) * 1e9);
  return opened;
}

}  // namespace zerohop::gda
