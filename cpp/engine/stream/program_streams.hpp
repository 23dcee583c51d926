// Streams of the program: the GPU of each, and what it waits for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/locks.hpp"
#include "engine/stream/captured_waits.hpp"
#include "engine/stream/stream_waits.hpp"

namespace zerohop::engine {

// Thread-safe.
class ProgramStreams {
 public:
  // cuda: null: libcuda's, loaded when it is needed. seconds: default bound of a wait.
  ProgramStreams(std::shared_ptr<const driver::Cuda> cuda, double seconds)
      : cuda_(std::move(cuda)), seconds_(seconds) {}

  void serve(StreamWaits::Host host) { host_ = std::move(host); }  // before the first wait
  // Throws RouteUnavailable (no GPU), CudaError.
  StreamWaits::Stream find(driver::CudaStream handle, std::optional<double> timeout);
  // Throws Error once closed.
  std::shared_ptr<StreamWaits> waits();
  std::shared_ptr<CapturedWaits> captured_waits();
  // Reserves a place for a later wait: see StreamHold. Null: built without kernels, so no stream
  // waits for anything of this library.
  std::unique_ptr<StreamHold> hold(driver::CudaStream handle);
  // The slot of a notification that the stream waits for; polls anew, for a moment.
  std::optional<std::uint32_t> awaited(driver::CudaStream handle);

  void end_waits();         // the Endpoint is closed: ends all waits now
  void release() noexcept;  // also releases the GPUs

 private:
  const std::shared_ptr<const driver::Cuda> cuda_;
  const double seconds_;

  Mutex<Rank::endpoint_gpus> mutex_;  // guards all members below
  bool closed_ = false;
  std::optional<StreamWaits::Host> host_;
  std::map<int, std::shared_ptr<const gpu::Device>> devices_;  // by ordinal
  std::shared_ptr<StreamWaits> waits_;                         // null before the first
  std::shared_ptr<CapturedWaits> captured_waits_;              // likewise
};

}  // namespace zerohop::engine
