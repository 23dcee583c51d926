#include "engine/path/gpu/remote_gpus.hpp"

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::engine {
namespace {

using DevicePtr = std::shared_ptr<const gpu::Device>;

// The peer's GPU in words, with the addresses of both GPUs if they differ and are known.
std::string name_peer(const std::string& remote, const gpu::PeerLink& link) {
  const std::string here = "cuda:" + std::to_string(link.ordinal);  // its name in this process
  switch (link.kind) {
    case gpu::PeerLink::Kind::same: return "the peer's " + remote + ", which is the same GPU";
    case gpu::PeerLink::Kind::seen:
      return "the peer's " + remote + (remote != here ? " (" + here + " in this process)" : "");
    case gpu::PeerLink::Kind::unseen: break;
  }
  return "the peer's " + remote +
         ", which this process has mapped but does not see (CUDA_VISIBLE_DEVICES)";
}

// The link to host memory.
constexpr const char* kToCpu = ", over its link to the CPU (PCIe on most machines)";

std::string how_gpu_copies(const GpuReach& reached, bool local_on_host, const std::string& remote) {
  const std::string name = reached.device->facts().device_name();
  if (!reached.link) {
    return name +
           " copies between its memory and the peer's in pages of the host that this "
           "process has mapped and page-locked" +
           kToCpu;
  }
  if (!local_on_host) return name + " copies from and to " + name_peer(remote, *reached.link);
  return name + " copies between page-locked memory of the host" + kToCpu + ", and " +
         name_peer(remote, *reached.link);
}

Route make_gpu_route(RouteBook& book, const GpuReach& reached, bool local_on_host,
                     const std::string& remote) {
  const gpu::DeviceFacts& local = reached.device->facts();
  Route route{.kind = "p2p",
              .device = local.device_name(),
              .reason = "both processes are on this host, and " +
                        how_gpu_copies(reached, local_on_host, remote),
              .settings = {},
              .stats = book.of("p2p", local.device_name())};
  const bool two = reached.link && reached.link->kind == gpu::PeerLink::Kind::seen;
  if (two && !local_on_host) route.gpus = {local.pci, reached.link->pci};
  return route;
}

void set_places(GpuReach& reached, const GpuMappings::Places& places) {
  reached.link = {places.front(), &places.front()->link};
  for (const auto& place : places) {
    const auto& [mapping, memory, link] = *place;
    reached.remote.push_back(
        {mapping->begin, mapping->end, memory->at(mapping->begin) - mapping->begin});
    reached.parts.push_back({mapping, place});
  }
}

}  // namespace

// An error in `reach` becomes the reason.
template <typename Reach>
GpuReach RemoteGpus::attempt(const Neighbour::Patience& patience, Reach reach) {
  Neighbour::Reached board = neighbour_->reach_board(patience);
  GpuReach reached{.session = board.session, .reason = board.reason};
  if (!board.session) return reached;
  try {
    reach(reached);
    return reached;
  } catch (const TransferTimeout& error) {
    neighbour_->no_answer(board, error);
  } catch (const Error& error) {
    if (board.session->ended()) {
      neighbour_->ended(board, error);
    } else {
      board.reason = error.what();
    }
  }
  return {.session = board.session, .reason = board.reason};
}

GpuReach RemoteGpus::reach(const RemoteMemory& remote, const DevicePtr& device,
                           const Neighbour::Patience& patience) {
  return attempt(patience, [&](GpuReach& reached) {
    const Extent extent = remote.layout.extent();
    auto places = gpus_.known(remote.local_key, extent, device->ordinal());
    if (places.empty()) {
      places = gpus_.reach(*reached.session, remote.local_key, extent, device,
                           neighbour_->until(patience));
    }
    set_places(reached, places);
    reached.device = device;
  });
}

std::shared_ptr<const RemoteGpus::Way> RemoteGpus::known(std::uint64_t local_key,
                                                         int ordinal) const {
  const std::lock_guard lock(mutex_);
  const auto found = ways_.find({local_key, ordinal});
  return found == ways_.end() ? nullptr : found->second;
}

void RemoteGpus::remember(std::uint64_t local_key, const GpuReach& reached) {
  if (!reached.link || reached.parts.size() != 1) return;
  const auto place =
      std::static_pointer_cast<const GpuMappings::Spot>(reached.parts.front().memory);
  const std::lock_guard lock(mutex_);
  if (ways_.size() >= ways_most_) {
    std::erase_if(ways_, [](const auto& entry) { return entry.second->place.expired(); });
    ways_most_ = std::max<std::size_t>(64, 2 * ways_.size());
  }
  auto& way = ways_[{local_key, reached.device->ordinal()}];
  if (way && way->place.lock() == place && way->session.lock() == reached.session) return;
  way = std::make_shared<const Way>(reached.session, place, reached.route);
}

GpuReach RemoteGpus::reach_by_any(const RemoteMemory& remote, const GpuChoice::Table& given,
                                  const Neighbour::Patience& patience) {
  if (const DevicePtr known = choice_.found(remote.device)) {
    return reach(remote, known, patience);
  }
  std::vector<int> candidates;
  GpuChoice::Table cuda;
  GpuReach reached = attempt(patience, [&](GpuReach& asked) {
    cuda = choice_.table(given);
    candidates = GpuChoice::candidates(
        *cuda, GpuMappings::gpu_of(*asked.session, remote.local_key, remote.layout.extent().begin,
                                   neighbour_->until(patience)));
  });
  for (const int ordinal : candidates) {
    try {
      reached = reach(remote, choice_.open(cuda, ordinal), patience);
    } catch (const CudaError& error) {
      reached.reason = error.what();
    }
    if (reached.device) choice_.remember(remote.device, reached.device);
    if (reached.device || !reached.session) break;
  }
  return reached;
}

RemoteGpus::DevicePtr RemoteGpus::device_of(driver::CudaStream stream,
                                            const GpuChoice::Table& given) {
  const GpuChoice::Table cuda = choice_.table(given);
  return choice_.open(cuda, gpu::ordinal_of(*cuda, stream));
}

GpuReach RemoteGpus::reach_by_stream(driver::CudaStream stream, const RemoteMemory& remote,
                                     const GpuChoice::Table& given,
                                     const Neighbour::Patience& patience) {
  DevicePtr device;
  try {
    device = device_of(stream, given);
  } catch (const CudaError& error) {
    return {.session = nullptr, .reason = error.what()};
  }
  return reach(remote, device, patience);
}

GpuReach RemoteGpus::reach_host(const RemoteMemory& remote, const DevicePtr& device,
                                const Neighbour::Patience& patience) {
  Neighbour::Reached mapped = neighbour_->reach(remote, patience);
  GpuReach reached{.session = std::move(mapped.session), .reason = std::move(mapped.reason)};
  if (!mapped.mapping) return reached;
  if (!mapped.mapping->pages) {
    reached.reason =
        "the remote array lies in plain memory of its process, which no GPU of this one reaches: "
        "allocate it by Endpoint.empty(), or let that process read or write from its side";
    return reached;
  }
  const auto pages = hosts_.pages(*reached.session, mapped.mapping);
  const auto data = reinterpret_cast<std::uint64_t>(mapped.mapping->pages->data());
  const std::uint64_t shift = data - mapped.mapping->begin;
  const Extent extent = remote.layout.extent();
  try {
    for (const Extent& range : pages->reach(device, {extent.begin + shift, extent.end + shift},
                                            neighbour_->until(patience))) {
      reached.remote.push_back({range.begin - shift, range.end - shift, shift});
    }
  } catch (const RouteUnavailable& error) {
    return {.session = std::move(reached.session), .reason = error.what()};
  }
  reached.device = device;
  reached.parts.push_back({std::move(mapped.mapping), pages});
  return reached;
}

std::shared_ptr<const Route> RemoteGpus::route(const GpuReach& reached, bool local_on_host,
                                               const std::string& remote) {
  const int there = reached.link ? reached.link->ordinal : INT_MIN;
  const std::lock_guard lock(mutex_);
  const int copies = reached.device->ordinal();
  for (const KnownRoute& known : routes_) {
    if (known.copies == copies && known.local_on_host == local_on_host && known.there == there &&
        known.remote == remote) {
      return known.route;
    }
  }
  auto route =
      std::make_shared<const Route>(make_gpu_route(*book_, reached, local_on_host, remote));
  routes_.push_back({copies, local_on_host, there, remote, route});
  return route;
}

std::size_t RemoteGpus::sweep() {
  const auto session = neighbour_->known_board();
  return session ? gpus_.sweep(*session) + hosts_.sweep(*session) : 0;
}

void RemoteGpus::end() noexcept {
  neighbour_->end();  // first, so that nothing is mapped again
  notifier_.end();
  gpus_.clear();
  hosts_.clear();
}

}  // namespace zerohop::engine
