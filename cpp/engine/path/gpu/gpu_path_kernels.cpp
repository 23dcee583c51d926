// Direct access of the program's kernels to a Peer.
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "engine/path/gpu/gpu_path.hpp"

namespace zerohop::engine {
namespace {

[[noreturn]] void refuse(const std::string& reason) {
  throw RouteUnavailable("kernels cannot reach that memory by themselves, because " + reason);
}

std::shared_ptr<const Route> kernel_route(const Route& by_engine, const std::string& remote) {
  Route route = by_engine;
  route.reason = "both processes are on this host, and kernels of " + route.device +
                 " load from and store to the peer's " + remote + " by themselves";
  return std::make_shared<const Route>(std::move(route));
}

}  // namespace

std::shared_ptr<const void> hold_for_kernels(const std::shared_ptr<shm::LocalSession>& session,
                                             GpuReach::Part part) {
  const shm::RemoteMapping& mapping = *part.mapping;
  auto held = std::make_shared<const GpuReach::Held>(
      GpuReach::Held{.part = std::move(part), .hold = shm::LocalSession::hold(session, mapping)});
  // Checked after the hold: either this sees the end, or the owner sees the hold.
  if (session->refusal(&mapping) == shm::Copied::all) return held;
  throw RouteUnavailable(
      "kernels cannot reach that memory by themselves, because its owner closed it, or ended "
      "the connection");
}

KernelReach GpuPath::reach_for_kernels(const Pair& pair, Hearers hearers, double timeout) const {
  const auto& [local, remote] = std::tie(*pair.local, *pair.remote);
  if (local.on_host()) {
    throw std::invalid_argument("the local array of a device queue must lie on a GPU");
  }
  if (remote.device == "cpu") refuse("it is the host's");
  if (!gpus_) refuse(s_.local->why_not());
  const Neighbour::Patience patience{.seconds = timeout, .insists = true};
  auto registration = local.registration();
  const GpuReach reached = reach(pair, {}, patience);
  if (!reached.reason.empty()) refuse(reached.reason);
  if (reached.parts.size() > 1) {
    refuse("it lies in " + std::to_string(reached.parts.size()) +
           " chunks, which this process maps apart: take memory of Endpoint.empty()");
  }
  KernelReach found{
      .device = registration->device,
      .remote = remote.layout.address + reached.remote.front().shift,
      .puts = reached.parts.front().mapping->writable && (remote.access & kRemoteWrite) != 0,
      .gets = local.writable() && (remote.access & kRemoteRead) != 0,
      .atomics = gpu::has_native_atomics(*registration->device, *reached.link),
      .notes = {},
      .route = kernel_route(*reached.route, remote.device)};
  found.kept.push_back(hold_for_kernels(reached.session, reached.parts.front()));
  found.kept.push_back(registration);
  found.session = reached.session;
  found.part = reached.parts.front();
  found.notes = gpus_->notes_for_kernels(reached.session, {found.device, hearers}, patience);
  return found;
}

}  // namespace zerohop::engine
