// What an Endpoint shares among the checks of its Peers: the thread that computes checksums, so
// that no other thread waits for them, and the memory that peers may ask about.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/channel/control_message.hpp"
#include "engine/integrity/checksums.hpp"
#include "engine/memory/own_memories.hpp"
#include "engine/path/local/copy_queue.hpp"

namespace zerohop::engine {

// Per SumUp: a few milliseconds of work, so that peers take turns.
inline constexpr std::uint64_t kMostSummedAtOnce = std::uint64_t{32} << 20;

class Checker {
 public:
  // chunk: see Checksums.
  Checker(std::size_t chunk, std::shared_ptr<OwnMemories> memories)
      : sums_(chunk), memories_(std::move(memories)) {}

  using Task = std::function<void()>;
  // Tasks run one after another on the thread; they must not throw. Throws what CopyQueue throws.
  void put(Task task) {
    tasks_.put(this, [task = std::move(task)] {
      task();
      return CopyQueue::Step::done;
    });
  }
  // Finishes pending tasks first. Do not call from a task or in a forked child.
  void stop() noexcept {
    tasks_.stop();
    sums_.release();
  }

  // --- for tasks ---
  // Throws CudaError.
  std::vector<std::uint32_t> sums_of(const SummedPart& part, const gpu::Device* device) {
    return sums_.of(part, device);
  }
  SummedUp answer(const SumUp& asked) noexcept;

 private:
  void add_sums(const SumUp::Part& part, std::uint64_t& left, std::vector<std::uint32_t>& sums);

  Checksums sums_;
  const std::shared_ptr<OwnMemories> memories_;
  CopyQueue tasks_;  // destroyed first: its thread uses the others
};

}  // namespace zerohop::engine
