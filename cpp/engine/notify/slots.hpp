// Ranges of notification slots, as passed by callers.
#pragma once

#include <cstdint>
#include <string>

namespace zerohop::engine {

std::string slots_text(std::uint64_t first, std::uint64_t count);       // "slot 9", "slots 4 to 7"
std::string no_notification(std::uint64_t first, std::uint64_t count);  // the message of a timeout
// Throws std::invalid_argument (none), std::out_of_range.
void check_slots(std::uint64_t first, std::uint64_t count);

struct Notification;
// Throws std::out_of_range (slot), std::invalid_argument (a value of 0).
void check_notification(const Notification& notification);

}  // namespace zerohop::engine
