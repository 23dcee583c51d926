#include "engine/path/program_order.hpp"

#include <string>

#include "base/error.hpp"
#include "engine/memory/cuda_table.hpp"
#include "engine/stream/program_streams.hpp"
#include "gpu/capture.hpp"
#include "gpu/default_stream.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::engine {
namespace {

// The peer may wait in the same kind of call: neither would ever notify the other.
void check_awaits_nothing(ProgramStreams& streams, driver::CudaStream stream) {
  const auto slot = streams.awaited(stream);
  if (!slot) return;
  throw RouteUnavailable(
      "stream= waits for notification slot " + std::to_string(*slot) +
      ", and this call would wait for the stream: with integrity=1 only a GPU that copies by p2p "
      "takes its turn there. Wait for the notification on the CPU (wait_notify without stream=), "
      "synchronize the stream first, or leave integrity out");
}

}  // namespace

void wait_for_program(const Memory& memory, const Deadline& deadline) {
  if (memory.on_host() || memory.layout().count() == 0) return;
  if (gpu::wait_default_stream(*memory.registration()->device, deadline)) return;
  throw TransferTimeout("earlier work in the default stream of " + memory.device() +
                        " did not end in time, so nothing was transferred: give a "
                        "longer timeout");
}

void wait_for_program(std::span<const Pair> pairs, const Deadline& deadline) {
  const Memory* last = nullptr;  // consecutive arrays of one GPU wait once
  for (const auto& [local, remote] : pairs) {
    if (last != nullptr && last->device() == local->device()) continue;
    wait_for_program(*local, deadline);
    if (local->layout().count() > 0) last = local;
  }
}

bool CallStream::is_captured(const TransferOptions& options) const {
  return options.stream && gpu::is_captured(*cuda_for_stream(cuda_), *options.stream);
}

void CallStream::wait(const TransferOptions& options, const Deadline& deadline) const {
  if (!options.stream) return;
  if (options.compared) check_awaits_nothing(*streams_, *options.stream);
  if (gpu::wait_user_stream(cuda_for_stream(cuda_), *options.stream, deadline)) return;
  throw TransferTimeout(
      "earlier work in the stream did not end in time, so nothing was transferred: give a "
      "longer timeout");
}

}  // namespace zerohop::engine
