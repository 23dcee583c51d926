// What a call that transfers may say besides what is transferred.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "driver/cuda.hpp"
#include "engine/notify/notification.hpp"
#include "engine/path/message.hpp"

namespace zerohop::engine {

inline Message notify_message(const Notification& notification) {
  return {.kind = MessageKind::notify, .tag = notification.slot, .value = notification.value};
}

// Where a device has much to do: whether to wait until it has not. The work is accepted all the
// same.
enum class Room { wait, take };

struct TransferOptions {
  std::optional<Notification> notify;             // put behind the data
  std::string require;                            // the only kind of route allowed; empty: any
  std::optional<double> timeout;                  // seconds a full queue may hold the caller up
  std::optional<driver::CudaStream> stream = {};  // the transfer begins behind what it was given
  // Issued for a running kernel, which may occupy the GPU without end: devices move what it has
  // made ready, and the call waits for no stream.
  bool for_kernel = false;
  // A write is done only when its bytes are visible at the peer, not when an adapter has them.
  bool visible = false;
  Room room = Room::wait;  // take: a thread asks that others wait for
  // It is compared once it is moved: where the call would wait for a stream that waits for a
  // notification itself, it is refused.
  bool compared = false;
  bool in_turn = false;  // all that it is to follow is done: no other copy is waited for
  // Only if it is of a few bytes, and the call waits for nothing: else null.
  bool briefly = false;

  bool may_be_p2p() const { return !for_kernel && (require.empty() || require == "p2p"); }
};

}  // namespace zerohop::engine
