// Waiting for earlier GPU work of the program, because adapters and CPU copies do not follow
// streams. All throw TransferTimeout; then nothing was transferred.
#pragma once

#include <memory>
#include <span>

#include "base/deadline.hpp"
#include "driver/cuda.hpp"
#include "engine/path/call.hpp"
#include "engine/path/transfer_options.hpp"

namespace zerohop::engine {

class ProgramStreams;

// The default stream of the memory's GPU, whether it fills a source or still uses a destination.
void wait_for_program(const Memory& memory, const Deadline& deadline);
void wait_for_program(std::span<const Pair> pairs, const Deadline& deadline);

// The stream= of one Endpoint's calls.
class CallStream {
 public:
  // cuda: null: libcuda's, loaded when needed.
  CallStream(std::shared_ptr<ProgramStreams> streams, std::shared_ptr<const driver::Cuda> cuda)
      : streams_(std::move(streams)), cuda_(std::move(cuda)) {}

  // Also throws RouteUnavailable if the stream itself waits for a notification.
  void wait(const TransferOptions& options, const Deadline& deadline) const;
  // Whether the call would become part of a CUDA graph. Throws RouteUnavailable (no GPU).
  bool is_captured(const TransferOptions& options) const;
  ProgramStreams& streams() const noexcept { return *streams_; }
  const std::shared_ptr<const driver::Cuda>& cuda() const noexcept { return cuda_; }

 private:
  const std::shared_ptr<ProgramStreams> streams_;
  const std::shared_ptr<const driver::Cuda> cuda_;
};

}  // namespace zerohop::engine
