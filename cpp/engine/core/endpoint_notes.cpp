// The notification board of an Endpoint: access by the CPU.
#include <cerrno>
#include <chrono>

#include "base/error.hpp"
#include "base/recording.hpp"
#include "base/trace.hpp"
#include "engine/core/endpoint.hpp"
#include "engine/notify/slots.hpp"

namespace zerohop::engine {
namespace {

// This many slots are scanned every time, because GPUs put values without counting them.
constexpr std::uint32_t kFewSlots = 64;
// Larger ranges are scanned at intervals, too: the wake-up for a GPU's value may come before the
// value is visible.
constexpr std::chrono::milliseconds kScanAgain{10};

// Scans that find nothing are not recorded: there may be any number of them.
void record_taken(const trace::Entry::Facts& facts, std::uint32_t slot, std::uint32_t value) {
  trace::Entry record;
  record.begin(facts);
  record.end_with(slot, value);
}

}  // namespace

Endpoint::Notified Endpoint::wait_notify(std::uint32_t first, std::uint32_t count, bool reset,
                                         const Deadline& deadline) {
  const Entered entered = enter();
  check_slots(first, count);
  trace::Range range;
  if (const trace::Tool* tool = trace::tool()) {
    range.begin(*tool, ("wait_notify " + slots_text(first, count)).c_str(), first);
  }
  const std::uint64_t begin = trace::records() ? trace::recording_clock() : 0;
  Board& board = *services_.board;
  std::uint64_t scanned = board.puts() - 1;  // differs, so that the first look always scans
  Deadline::Clock::time_point scan_again{};
  std::optional<Notified> notified;
  services_.poller->wait(
      [&] {
        const std::uint64_t puts = board.puts();
        const bool many = count > kFewSlots;  // otherwise the clock is not read either
        if (!many || puts != scanned || Deadline::Clock::now() >= scan_again) {
          notified = board.find(first, count, reset);
          if (many) scan_again = Deadline::Clock::now() + kScanAgain;
        }
        scanned = puts;
        return notified.has_value() || closed() || control_->lonely() || all_gone(rails_);
      },
      deadline);
  if (notified) {
    record_taken({.what = "wait_notify", .begin = begin}, notified->first, notified->second);
    return *notified;
  }
  if (const auto last = take_notify(first, count, reset, begin)) return *last;
  throw TransferTimeout(no_notification(first, count));
}

void Endpoint::wait_notifies(std::uint32_t first, std::uint32_t count, std::vector<Notified>& taken,
                             const Deadline& deadline) {
  std::shared_ptr<Board> board;  // kept alive if the Endpoint is closed meanwhile
  {
    const Entered entered = enter();
    board = services_.board;
  }
  taken.clear();
  taken.reserve(count);  // so that no taken value is lost for want of memory
  taken.push_back(wait_notify(first, count, true, deadline));
  const std::uint32_t end = first + count;
  for (std::uint32_t next = taken.back().first + 1; next < end; next = taken.back().first + 1) {
    const auto another = board->find(next, end - next, true);
    if (!another) return;
    taken.push_back(*another);
    record_taken({.what = "wait_notify"}, another->first, another->second);
  }
}

std::optional<Endpoint::Notified> Endpoint::find_notify(std::uint32_t first, std::uint32_t count,
                                                        bool reset) {
  const Entered entered = enter();
  check_slots(first, count);
  return take_notify(first, count, reset, trace::records() ? trace::recording_clock() : 0);
}

std::optional<Endpoint::Notified> Endpoint::take_notify(std::uint32_t first, std::uint32_t count,
                                                        bool reset, std::uint64_t begin) {
  const auto loss = control_->lonely();  // read first: what came before the loss is still delivered
  const auto notified = services_.board->find(first, count, reset);
  if (notified) {
    record_taken({.what = "wait_notify", .begin = begin}, notified->first, notified->second);
    return notified;
  }
  check_open();
  if (loss) {
    throw PeerLost(*loss + "; no peer is left that could notify: connect or accept one");
  }
  check_devices();
  return std::nullopt;
}

std::uint32_t Endpoint::peek_notify(std::uint32_t slot) const {
  check_open();
  check_slots(slot, 1);
  return services_.board->peek(slot);
}

std::uint32_t Endpoint::reset_notify(std::uint32_t slot) {
  check_open();
  check_slots(slot, 1);
  const std::uint32_t value = services_.board->reset(slot);
  if (value != 0) record_taken({.what = "reset_notify"}, slot, value);
  return value;
}

void Endpoint::notify(const Notification& notification) {
  const Entered entered = enter();
  check_notification(notification);
  services_.board->put(notification.slot, notification.value);
  services_.poller->wake();
}

}  // namespace zerohop::engine
