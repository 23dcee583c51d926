// What kernels of the program reach of a Peer by themselves.
#include <utility>

#include "base/error.hpp"
#include "engine/path/verbs/atomics.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::engine {
namespace {

[[noreturn]] void refuse(const std::string& reason) {
  throw RouteUnavailable("kernels cannot reach that memory by themselves, because " + reason);
}

void check_one_range(const Layout& layout, const char* which) {
  if (!layout.is_contiguous() || layout.nbytes() == 0) {
    throw std::invalid_argument(std::string("a device queue takes whole ranges of memory: the ") +
                                which + " array must be contiguous and not empty");
  }
}

std::shared_ptr<const Route> kernel_route(const Route& by_engine, const std::string& remote) {
  Route route = by_engine;
  route.reason = "both processes are on this host, and kernels of " + route.device +
                 " load from and store to the peer's " + remote + " by themselves";
  return std::make_shared<const Route>(std::move(route));
}

}  // namespace

std::shared_ptr<const void> hold_for_kernels(const std::shared_ptr<ipc::Visit>& visit,
                                             GpuReach::Part part) {
  const ipc::Window& window = *part.window;
  auto held = std::make_shared<const GpuReach::Held>(
      GpuReach::Held{.part = std::move(part), .hold = ipc::Visit::hold(visit, window)});
  // Asked behind the hold: either this sees the end, or the owner the hold.
  if (visit->refusal(&window) == ipc::Copied::all) return held;
  throw RouteUnavailable(
      "kernels cannot reach that memory by themselves, because its owner has closed it, or ended "
      "the connection");
}

void Peer::check_for_kernels(const Pair& pair) const {
  check_alive();
  check_ends(pair);
  check_one_range(pair.first->layout(), "local");
  check_one_range(pair.second->layout, "remote");
}

KernelReach Peer::reach_for_kernels(const Memory& local, const RemoteMemory& remote,
                                    Hearers hearers, const std::optional<double>& timeout) const {
  const Pair pair{&local, &remote};
  check_for_kernels(pair);
  if (local.on_host()) {
    throw std::invalid_argument("the local array of a device queue must lie on a GPU");
  }
  if (remote.device == "cpu") refuse("it is the host's");
  if (!neighbour_) refuse(why_no_neighbour());
  const Neighbour::Patience patience{.seconds = timeout.value_or(host_.default_timeout),
                                     .insists = true};
  auto pinned = local.pinned();
  const GpuReach reached = reach_by_gpu(pair, {}, patience);
  if (!reached.reason.empty()) refuse(reached.reason);
  if (reached.parts.size() > 1) {
    refuse("it lies in " + std::to_string(reached.parts.size()) +
           " chunks, which this process maps apart: take memory of Endpoint.empty()");
  }
  KernelReach found{
      .device = pinned->device,
      .remote = remote.layout.address + reached.remote.front().shift,
      .puts = reached.parts.front().window->writable && (remote.access & kRemoteWrite) != 0,
      .gets = local.writable() && (remote.access & kRemoteRead) != 0,
      .atomics = gpu::has_native_atomics(*pinned->device, *reached.link),
      .notes = {},
      .route = kernel_route(*reached.route, remote.device)};
  found.kept.push_back(hold_for_kernels(reached.visit, reached.parts.front()));
  found.kept.push_back(pinned);
  found.notes = neighbour_->notes_for_kernels(reached.visit, found.device, hearers, patience);
  return found;
}

bool Peer::has_atomics(const RemoteMemory& remote) const {
  const VerbsPath& path = atomics_path();
  if (remote.staged() || remote.rkeys[path.rail()] == 0) return false;
  try {
    check_atomics(path.served_by(), remote);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

EntryReach Peer::reach_for_entries(const Memory& local, const RemoteMemory& remote) const {
  const Pair pair{&local, &remote};
  check_for_kernels(pair);
  const RailMask rail = RailMask{1} << group_->message_rail();
  return {.local = local.pinned(),
          .puts = (remote.access & kRemoteWrite) != 0,
          .gets = local.writable() && (remote.access & kRemoteRead) != 0,
          .atomics = has_atomics(remote),
          .route = routes_.over(route_kind(local, remote), rail)};
}

}  // namespace zerohop::engine
