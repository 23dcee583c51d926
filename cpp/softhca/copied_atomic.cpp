#include "softhca/copied_atomic.hpp"

#include <cstring>

#include "base/locks.hpp"

namespace zerohop::softhca {
namespace {

int finish(driver::CopyLane& lane) noexcept {
  const int error = lane.mark(0);
  return error != 0 ? error : lane.wait(0);
}

int change(driver::CopyLane& lane, std::uint64_t address, bool adds, const wire::Operands& operands,
           std::uint64_t& old) noexcept {
  std::byte* chunk = lane.chunk(0);
  int error = lane.start_to_host(chunk, address, sizeof old);
  if (error == 0) error = finish(lane);
  if (error != 0) return error;
  std::memcpy(&old, chunk, sizeof old);
  if (!adds && old != operands.compare) return 0;
  const std::uint64_t fresh = adds ? old + operands.operand : operands.operand;
  std::memcpy(chunk, &fresh, sizeof fresh);
  error = lane.start_to_device(address, chunk, sizeof fresh);
  return error != 0 ? error : finish(lane);
}

}  // namespace

int copied_atomic(Mutex<Rank::softhca_copied_atomics>& mutex, const Place& word, bool adds,
                  const wire::Operands& operands, std::uint64_t& old) noexcept {
  driver::Copier& copier = **word.copier;
  const std::lock_guard guard(mutex);
  driver::CopyLane* lane = nullptr;
  if (const int error = copier.take(lane); error != 0) return error;
  const int error = change(*lane, reinterpret_cast<std::uint64_t>(word.at), adds, operands, old);
  copier.give_back(*lane);
  return error;
}

}  // namespace zerohop::softhca
