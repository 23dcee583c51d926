#include "engine/path/verbs/atomics.hpp"

#include <stdexcept>

#include "base/error.hpp"

namespace zerohop::engine {

void check_atomics(const Rail& own, const RemoteMemory& word) {
  constexpr std::uint8_t kBoth = kRemoteRead | kRemoteWrite;
  if ((word.access & kBoth) != kBoth) {
    throw std::invalid_argument("the remote memory is read-only: atomics need a writable array");
  }
  const bool here = !own.has_atomics();
  if (!here && (word.access & kRemoteNoAtomics) == 0) return;
  throw RouteUnavailable("there are no atomics with this memory: " +
                         (here ? "device " + own.name() : std::string("the peer's device")) +
                         " has none (atomic_cap is NONE); use another device, for instance soft0, "
                         "or send() the operand to the owner");
}

}  // namespace zerohop::engine
