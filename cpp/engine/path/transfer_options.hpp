// The options of a transfer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "driver/cuda.hpp"
#include "engine/notify/notification.hpp"
#include "engine/path/message.hpp"

namespace zerohop::engine {

inline Message notify_message(const Notification& notification) {
  return {.kind = MessageKind::notify, .value = notification.value, .tag = notification.slot};
}

// On a busy device: whether to wait for room. The work is accepted in either case.
enum class Room { wait, take };

struct TransferOptions {
  std::optional<Notification> notify;             // put after the data
  std::string require;                            // the only kind of route allowed; empty: any
  std::optional<double> timeout;                  // seconds that a full queue may block the caller
  std::optional<driver::CudaStream> stream = {};  // the transfer begins after its earlier work
  // Issued for a running kernel, which may occupy the GPU indefinitely: devices move the data it
  // has prepared, and the call waits for no stream.
  bool for_kernel = false;
  // A write is done only once its bytes are visible at the peer, not already at its adapter.
  bool visible = false;
  Room room = Room::wait;  // take: the call runs on a thread that others wait for
  // The data is compared after the move. The call is refused if it would wait for a stream that
  // itself waits for a notification.
  bool compared = false;
  bool in_turn = false;  // all earlier work is done: wait for no other copy
  // Only a transfer of a few bytes for which the call need not wait; otherwise null.
  bool briefly = false;

  bool may_be_p2p() const { return !for_kernel && (require.empty() || require == "p2p"); }
};

}  // namespace zerohop::engine
