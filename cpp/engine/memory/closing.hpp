// Ends the right to some memory in two steps: first no new use can start, then copies that peers
// have started are awaited.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/memory/memory.hpp"

namespace zerohop::engine {

class Closing {
 public:
  // The first step. nullopt: it is gone, or another thread is closing it.
  static std::optional<Closing> begin(const WeakMemory& memory) noexcept;

  bool is_awaited() const noexcept;  // a copy still runs
  // The second step. Reports copies that still run at the deadline.
  void finish(const Deadline& deadline) noexcept;

 private:
  Closing(std::shared_ptr<Lease<const Registration>> lease,
          std::shared_ptr<const Registration> last, std::string device) noexcept;

  std::shared_ptr<Lease<const Registration>> lease_;
  std::string device_;
  // Destroyed after finish(): its destructor may run code of the program, which may close the
  // memory again.
  std::shared_ptr<void> owner_;
  std::shared_ptr<const StagedMemories::Right> right_;
  std::shared_ptr<shm::Exposures> exposures_;
  shm::GenerationEntry entry_{};
};

}  // namespace zerohop::engine
