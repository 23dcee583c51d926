#include "rdma/async_event.hpp"

#include <array>

namespace zerohop::rdma {
namespace {

enum class Names { device, queue, queue_pair, port };  // what an event is about

enum class Weight { note, trouble };  // informational, or something is wrong

struct EventMeaning {
  const char* name;
  Names names;
  Weight weight;
  const char* help;
};

// Indexed by ibv_event_type. Meanings: man ibv_get_async_event.
constexpr std::array<EventMeaning, IBV_EVENT_WQ_FATAL + 1> kEventMeanings{{
    {"CQ_ERR", Names::queue, Weight::trouble,
     "a completion queue overran and takes no more completions: make a new Endpoint, or a "
     "new and deeper queue"},
    {"QP_FATAL", Names::queue_pair, Weight::trouble,
     "the queue pair failed and takes no more requests: see dmesg; it must be reconnected"},
    {"QP_REQ_ERR", Names::queue_pair, Weight::trouble,
     "the peer sent a request that this queue pair cannot serve: compare the limits of both "
     "ends; it must be reconnected"},
    {"QP_ACCESS_ERR", Names::queue_pair, Weight::trouble,
     "the peer requested memory that it has no right to: check the key, range and access that "
     "it was given; the queue pair must be reconnected"},
    {"COMM_EST", Names::queue_pair, Weight::note,
     "the peer's first message came before RTS, which is harmless"},
    {"SQ_DRAINED", Names::queue_pair, Weight::note, "the send queue is drained, which is harmless"},
    {"PATH_MIG", Names::queue_pair, Weight::note,
     "the connection moved to its alternate path, which is harmless"},
    {"PATH_MIG_ERR", Names::queue_pair, Weight::trouble,
     "the connection could not move to its alternate path: check both paths"},
    {"DEVICE_FATAL", Names::device, Weight::trouble,
     "the adapter failed or was removed: see dmesg, then make a new Endpoint"},
    {"PORT_ACTIVE", Names::port, Weight::note, "the link is up"},
    {"PORT_ERR", Names::port, Weight::trouble,
     "the link went down: transfers fail until it is up again; check cable, switch and ip link"},
    {"LID_CHANGE", Names::port, Weight::trouble,
     "the subnet manager gave the port another LID: queue pairs are replaced when they fail"},
    {"PKEY_CHANGE", Names::port, Weight::trouble, "the partition table changed: check pkey_index"},
    {"SM_CHANGE", Names::port, Weight::note, "another subnet manager took over, which is harmless"},
    {"SRQ_ERR", Names::queue, Weight::trouble,
     "the shared receive queue failed and takes no more messages: see dmesg, then make a new "
     "Endpoint"},
    {"SRQ_LIMIT_REACHED", Names::queue, Weight::note,
     "the shared receive queue runs low, which is harmless"},
    {"QP_LAST_WQE_REACHED", Names::queue_pair, Weight::note,
     "the queue pair is in error and consumes no more shared receives"},
    {"CLIENT_REREGISTER", Names::port, Weight::note,
     "the subnet manager restarted, which is harmless"},
    {"GID_CHANGE", Names::port, Weight::trouble,
     "the GID table changed, like an address of the network interface: new connections fail if "
     "the Endpoint's own GID is gone; make a new Endpoint then"},
    {"WQ_FATAL", Names::queue, Weight::trouble, "a work queue failed, but zerohop uses none"},
}};

const EventMeaning& meaning_of(ibv_event_type type) noexcept {
  static constexpr EventMeaning kUnknown{
      "UNKNOWN", Names::device, Weight::trouble,
      "this version does not know the event: see the man page of "
      "ibv_get_async_event"};
  const auto index = static_cast<std::size_t>(type);
  return index < kEventMeanings.size() ? kEventMeanings[index] : kUnknown;
}

}  // namespace

AsyncEvent AsyncEvent::decode(const ibv_async_event& event) noexcept {
  AsyncEvent decoded{event.event_type, 0, 0};
  const Names names = meaning_of(event.event_type).names;
  if (names == Names::queue_pair) decoded.qp_number = event.element.qp->qp_num;
  if (names == Names::port) decoded.port = event.element.port_num;
  return decoded;
}

const char* event_name(ibv_event_type type) noexcept { return meaning_of(type).name; }

const char* event_help(ibv_event_type type) noexcept { return meaning_of(type).help; }

bool is_trouble(ibv_event_type type) noexcept { return meaning_of(type).weight == Weight::trouble; }

bool ends_device(ibv_event_type type) noexcept {
  return type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR;
}

std::string describe(const AsyncEvent& event, const std::string& device, const std::string& peer) {
  std::string text = "device " + device + ": " + event_name(event.type);
  if (event.port != 0) text += " on port " + std::to_string(event.port);
  if (event.qp_number != 0) text += " of queue pair " + std::to_string(event.qp_number);
  if (!peer.empty()) text += " with peer '" + peer + "'";
  return text + ": " + event_help(event.type);
}

}  // namespace zerohop::rdma
