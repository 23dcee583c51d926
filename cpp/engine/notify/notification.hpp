// The contents of a put into a slot of a peer's notification board.
#pragma once

#include <cstdint>

namespace zerohop::engine {

struct Notification {
  std::uint32_t slot = 0;   // below Board::kSlots
  std::uint32_t value = 0;  // not 0, which means an empty slot
};

}  // namespace zerohop::engine
