// Calls that become part of CUDA graphs.
#include <array>
#include <utility>

#include "base/error.hpp"
#include "engine/path/gpu/gpu_path.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::engine {

// A notification alone, for which a stream names the GPU.
bool GpuPath::notifies_in_stream(const Call& call) const noexcept {
  return gpus_ && call.pairs.empty() && call.options.stream && call.options.may_be_p2p();
}

bool GpuPath::is_captured(const Move& move, const TransferOptions& options) {
  if (!options.stream || !move.device) return false;
  const gpu::DeviceGuard guard(*move.device);
  return gpu::check_capturable(*move.device, *options.stream);
}

// Follows nothing but its stream: what other calls have pending now says nothing about a replay.
TransferPtr GpuPath::capture(const Call& call, Move&& move,
                             std::shared_ptr<shm::LocalSession> session, const Deadline& until) {
  constexpr std::size_t kMost = GpuCaptures::kMostRanges;
  std::array<gpu::CopyPiece, kMost> listed;
  std::span<const gpu::CopyPiece> ranges = move.ranges.span();
  if (move.pieces != nullptr) {
    ranges = {listed.data(), move.pieces->fill(listed.data(), kMost, UINT64_MAX)};
  }
  if (ranges.size() > kMost || (move.pieces != nullptr && move.pieces->more())) {
    throw RouteUnavailable(
        "this call cannot become part of a CUDA graph, because it moves more than " +
        std::to_string(kMost) +
        " separate ranges of bytes: make the arrays contiguous, divide the call, or make it "
        "outside the capture");
  }
  if (!move.route) move.route = s_.local->neighbour()->route(nullptr);  // a notification alone
  auto transfer = std::make_shared<Transfer>(s_.poller, move.nbytes, std::move(move.route));
  const Neighbour::Patience patience{.seconds = s_.local->patience(call.options).seconds,
                                     .insists = true};
  const auto make_notes = [&](std::uint32_t writer) {
    return gpus_->notes_for_kernels(session, {move.device, Hearers::both, writer}, patience);
  };
  auto point = captures_.add({.device = move.device,
                              .stream = *call.options.stream,
                              .ranges = ranges,
                              .kept = std::move(move.kept),
                              .notify = call.options.notify,
                              .session = session},
                             make_notes, until);
  transfer->end_as_captured(std::move(point));
  if (!s_.state->alive()) cut_off();
  return transfer;
}

}  // namespace zerohop::engine
