// What an Endpoint has for the checks of its Peers: the thread that makes checksums, so that nobody
// else waits for them, and the memory that peers may ask about.
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

// Of one SumUp, at most: a few milliseconds' work, so that peers take turns.
inline constexpr std::uint64_t kMostSummedAtOnce = std::uint64_t{32} << 20;

class Checker {
 public:
  // chunk: as of Checksums.
  Checker(std::size_t chunk, std::shared_ptr<OwnMemories> memories)
      : sums_(chunk), memories_(std::move(memories)) {}

  using Task = std::function<void()>;
  // Tasks run one after the other, on the thread; they do not throw. Throws as CopyQueue does.
  void put(Task task) {
    tasks_.put(this, [task = std::move(task)] {
      task();
      return CopyQueue::Step::done;
    });
  }
  // Ends what is left first. Not in a task, nor in a forked child.
  void stop() noexcept {
    tasks_.stop();
    sums_.let_go();
  }

  // --- in a task ---
  // Throws CudaError.
  std::vector<std::uint32_t> sums_of(const SummedPart& part, const gpu::Device* device) {
    return sums_.of(part, device);
  }
  SummedUp answer(const SumUp& asked) noexcept;

 private:
  void add_sums(const SumUp::Part& part, std::uint64_t& left, std::vector<std::uint32_t>& sums);

  Checksums sums_;
  const std::shared_ptr<OwnMemories> memories_;
  CopyQueue tasks_;  // first to go: its thread uses the others
};

}  // namespace zerohop::engine
