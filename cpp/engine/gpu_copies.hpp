// Copies that GPUs of this process make for one Peer (the p2p route between arrays on GPUs), and
// what is to be done when they are placed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/poller.hpp"
#include "engine/transfer.hpp"
#include "gpu/copy_stream.hpp"

namespace zerohop::engine {

class GpuCopies : public Poller::Source {
 public:
  struct Work {
    std::shared_ptr<Transfer> transfer;  // null once cut off
    std::function<void()> finish;        // once placed: ends the transfer; does not throw
    std::vector<std::shared_ptr<const void>> kept;  // until nothing touches it any more
  };

  GpuCopies() = default;
  ~GpuCopies() override;  // what may still run leaves behind what it uses
  GpuCopies(const GpuCopies&) = delete;
  GpuCopies& operator=(const GpuCopies&) = delete;

  // Puts the copies into the stream of that GPU, behind what the program gave its default stream
  // so far. Throws CudaError, TransferTimeout: some may have been begun; `work` is kept until they
  // have ended.
  void begin(const std::shared_ptr<const gpu::Device>& device,
             std::span<const gpu::CopyPiece> ranges, Work work, const Deadline& deadline);

  bool pending() const noexcept override { return pending_.load(std::memory_order_acquire) > 0; }
  void poll() noexcept override;

  // Ends all transfers with what `failure` makes of their effect. The copies go on: what they use
  // is kept.
  void cut_off(const std::function<Failure(Effect)>& failure) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::optional<std::uint32_t> number;  // nullopt: part of it, so that the whole stream must end
    Work work;
  };
  // One GPU.
  struct Lane {
    explicit Lane(const std::shared_ptr<const gpu::Device>& device) : stream(device) {}
    gpu::CopyStream stream;
    std::list<Entry> entries;  // in order
    Clock::time_point asked{};
  };

  void poll(Lane& lane) noexcept;
  void end_first(Lane& lane, driver::CudaResult error) noexcept;

  std::mutex mutex_;                            // guards the next
  std::map<int, std::unique_ptr<Lane>> lanes_;  // by ordinal
  std::atomic<int> pending_{0};
};

}  // namespace zerohop::engine
