// Asynchronous events of a device, which belong to no completion.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace zerohop::rdma {

struct AsyncEvent {
  ibv_event_type type;
  std::uint32_t qp_number;  // 0 unless the event names a queue pair
  int port;                 // 0 unless the event names a port

  static AsyncEvent decode(const ibv_async_event& event) noexcept;
};

const char* event_name(ibv_event_type type) noexcept;  // "PORT_ERR": without its prefix
// Its meaning and the remedy: half a sentence.
const char* event_help(ibv_event_type type) noexcept;

// The whole device, or every queue of it, has become useless.
bool ends_device(ibv_event_type type) noexcept;

// Something is wrong, or soon will be; other events are informational.
bool is_trouble(ibv_event_type type) noexcept;

// "device rxe0: PORT_ERR on port 1: the link went down, ..."; with the peer of a queue pair, if
// known.
std::string describe(const AsyncEvent& event, const std::string& device,
                     const std::string& peer = "");

}  // namespace zerohop::rdma
