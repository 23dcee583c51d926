#include <stdexcept>
#include <utility>

#include "engine/notify/board.hpp"
#include "gda/address.hpp"
#include "gda/opened_way.hpp"

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

void map_ring(OpenedWay& opened, const Deadline& deadline) {
  for (const std::span<std::byte> pages : opened.proxy->ring().pages()) {
    const std::uint64_t begin = address_of(pages.data());
    map_pages(opened, opened.proxy, {begin, begin + pages.size()}, gpu::PageUse::write, deadline);
  }
}

}  // namespace

void map_pages(OpenedWay& opened, std::shared_ptr<const void> owner, const Extent& extent,
               gpu::PageUse use, const Deadline& deadline) {
  auto pages = std::make_shared<gpu::HostPages>(extent, std::move(owner), use);
  pages->reach_all(opened.device, deadline);
  opened.kept.push_back(std::move(pages));
}

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
                     const std::string& not_mapped, const Deadline& deadline) {
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
  map_ring(opened, deadline);
  opened.ring = opened.proxy->ring().describe();
  opened.ring->patience = static_cast<std::uint64_t>(timeout.value_or(endpoint.timeout()) * 1e9);
  return opened;
}

}  // namespace zerohop::gda
