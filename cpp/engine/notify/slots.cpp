#include "engine/notify/slots.hpp"

#include <stdexcept>

#include "engine/notify/board.hpp"
#include "engine/notify/notification.hpp"

namespace zerohop::engine {

std::string slots_text(std::uint64_t first, std::uint64_t count) {
  const std::string begin = std::to_string(first);
  if (count == 1) return "slot " + begin;
  return "slots " + begin + " to " + std::to_string(first + count - 1);
}

std::string no_notification(std::uint64_t first, std::uint64_t count) {
  return "no notification came to " + slots_text(first, count) + " in time";
}

void check_slots(std::uint64_t first, std::uint64_t count) {
  if (count == 0) throw std::invalid_argument("a notification range needs at least one slot");
  if (first + count > Board::kSlots) {
    throw std::out_of_range("out of range: notification " + slots_text(first, count) +
                            ", they go from 0 to " + std::to_string(Board::kSlots - 1));
  }
}

void check_notification(const Notification& notification) {
  if (notification.slot >= Board::kSlots) {
    throw std::out_of_range("notification slot " + std::to_string(notification.slot) +
                            " is out of range: slots go from 0 to " +
                            std::to_string(Board::kSlots - 1));
  }
  if (notification.value == 0) {
    throw std::invalid_argument(
        "a notification value must not be 0, which means an empty slot: use 1 to 2**32 - 1");
  }
}

}  // namespace zerohop::engine
