// What a GPU of this process reaches of a pair of arrays, of which one at least lies on a GPU:
// which GPU copies, and where it finds both.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::engine {
namespace {

// Another thread that page-locks the same pages takes no longer, as a rule.
constexpr double kMoment = 1.0;

}  // namespace

bool Peer::touch_gpus(std::span<const Pair> pairs) {
  return std::ranges::any_of(
      pairs, [](const Pair& pair) { return !pair.first->on_host() || !pair.second->on_host(); });
}

// The GPU of the local array copies; for one of the host the GPU of the stream, else one that is
// chosen.
GpuReach Peer::reach_by_gpu(const Pair& pair, const Stream& stream,
                            const Neighbour::Patience& patience) const {
  const auto& [local, remote] = pair;
  if (!touch_gpus({&pair, 1})) {
    return {.visit = nullptr,
            .reason = "of the pairs some lie in host memory: move those by a call of their own"};
  }
  if (remote->local_key == 0) {
    return {
        .visit = nullptr,
        .reason =
            "its owner keeps the remote memory from being mapped, as it can be revoked (a Grant)"};
  }
  const auto device = local->pinned()->device;
  GpuReach reached;
  if (remote->device == "cpu") {
    reached = neighbour_->reach_host_by_gpu(*remote, device, patience);
  } else if (device) {
    reached = neighbour_->reach_by_gpu(*remote, device, patience);
  } else if (stream) {
    reached = neighbour_->reach_by_gpu_of(*stream, *remote, host_.cuda, patience);
  } else {
    reached = neighbour_->reach_by_any_gpu(*remote, host_.cuda, patience);
  }
  if (!reached.reason.empty()) return reached;
  reach_local(reached, *local, patience);
  reached.route = neighbour_->gpu_route(reached, local->on_host(), remote->device);
  if (!local->on_host()) neighbour_->remember_by_gpu(remote->local_key, reached);
  return reached;
}

// Sets where the GPU finds the local array, or the reason why it does not.
void Peer::reach_local(GpuReach& reached, const Memory& local,
                       const Neighbour::Patience& patience) {
  reached.local.clear();
  if (!local.on_host()) return reached.local.push_back({});  // anywhere, as it lies
  try {
    const Deadline until = Deadline::after(Deadline::Seconds(std::min(patience.seconds, kMoment)));
    const auto ranges =
        local.pinned()->pages->reach(reached.device, local.layout().extent(), until);
    for (const Extent& range : ranges) reached.local.push_back({range.begin, range.end, 0});
  } catch (const RouteUnavailable& error) {
    reached.reason = error.what();
  }
}

Neighbour::Reached Peer::reach_gpu_as_neighbour(const Pair& pair,
                                                const Neighbour::Patience& patience) const {
  if (pair.second->layout.count() == 0) return neighbour_->reach_board(patience);
  auto found = reach_by_gpu(pair, {}, patience);
  Neighbour::Reached reached{
      .visit = std::move(found.visit), .window = nullptr, .reason = std::move(found.reason)};
  if (!reached.reason.empty()) return reached;
  reached.window = found.parts.front().window;
  reached.by_gpu = std::move(found.route);
  return reached;
}

}  // namespace zerohop::engine
