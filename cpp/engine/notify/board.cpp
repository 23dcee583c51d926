#include "engine/notify/board.hpp"

namespace zerohop::engine {

std::optional<std::pair<std::uint32_t, std::uint32_t>> Board::find(std::uint32_t first,
                                                                   std::uint32_t count,
                                                                   bool reset) noexcept {
  for (std::uint32_t slot = first; slot < first + count; ++slot) {
    if (!may_have(slot) || peek(slot) == 0) continue;
    const std::uint32_t value = reset ? this->reset(slot) : peek(slot);
    if (value != 0) return std::pair{slot, value};  // 0: another thread was faster
  }
  return std::nullopt;
}

}  // namespace zerohop::engine
