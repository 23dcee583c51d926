// Transfer and wait calls of Peers, Transfers and Endpoints as fast methods.
#include <algorithm>
#include <array>

#include "bindings/bind_peer.hpp"
#include "bindings/fast_method.hpp"
#include "bindings/instance.hpp"
#include "bindings/topics.hpp"
#include "bindings/transfer_object.hpp"

namespace zerohop::bindings {
namespace {

constexpr std::array kKeywords{"notify", "stream", "require", "timeout"};
constexpr std::size_t kTimeout = 3;                  // its index there
std::array<PyObject*, kKeywords.size()> keywords{};  // interned: compared by address

// False: an unknown keyword.
bool take(Extras& extras, const Arguments& arguments) {
  for (Py_ssize_t i = 0; i < arguments.named(); ++i) {
    const py::handle value = arguments.given[arguments.count + i];
    PyObject* const name = PyTuple_GET_ITEM(arguments.names, i);
    switch (std::ranges::find(keywords, name) - keywords.begin()) {
      case 0: extras.notify = value; break;
      case 1: extras.stream = value; break;
      case 2: extras.require = {value}; break;
      case kTimeout: extras.timeout = {demand_timeout(value)}; break;
      default: return false;
    }
  }
  return true;
}

// Peer.write() and Peer.read().
template <auto move_one>
PyObject* move_fast(const Arguments& arguments) {
  const auto* peer = find_instance<PeerHandle>(arguments.self);
  Extras extras;
  if (peer == nullptr || arguments.count != 2 || !take(extras, arguments)) return nullptr;
  return new_transfer(move_one(*peer, arguments.given[0], arguments.given[1], extras));
}

PyObject* notify_fast(const Arguments& arguments) {
  const auto* peer = find_instance<PeerHandle>(arguments.self);
  if (peer == nullptr || arguments.count != 2 || arguments.named() > 0) return nullptr;
  return new_transfer(notify_one(*peer, arguments.given[0], arguments.given[1], {}, {}));
}

// After `others` arguments, accepts nothing or a timeout, by position or by name.
bool take(Timeout& timeout, Py_ssize_t others, const Arguments& arguments) {
  const Py_ssize_t more = arguments.count + arguments.named() - others;
  if (arguments.count < others || more > 1) return false;
  if (arguments.named() == 1 && PyTuple_GET_ITEM(arguments.names, 0) != keywords[kTimeout]) {
    return false;
  }
  if (more == 1) timeout.seconds = demand_timeout(arguments.given[others]);
  return true;
}

PyObject* wait_fast(const Arguments& arguments) {
  const auto* transfer = find_instance<TransferHandle>(arguments.self);
  Timeout timeout;
  if (transfer == nullptr || !take(timeout, 0, arguments)) return nullptr;
  return wait_transfer(*transfer, timeout).release().ptr();
}

PyObject* wait_notify_fast(const Arguments& arguments) {
  auto* endpoint = find_instance<engine::Endpoint>(arguments.self);
  Timeout timeout;
  if (endpoint == nullptr || !take(timeout, 1, arguments)) return nullptr;
  const std::uint32_t slot = demand_slot(arguments.given[0]);
  const auto notified = waiting(*endpoint, timeout.seconds, [&](const Deadline& deadline) {
    return endpoint->wait_notify(slot, 1, /*reset=*/true, deadline);
  });
  return PyLong_FromUnsignedLong(notified.second);
}

}  // namespace

void make_transfers_fast(py::module_& m) {
  std::ranges::transform(kKeywords, keywords.begin(), PyUnicode_InternFromString);
  const py::object peer = m.attr("Peer");
  const py::object transfer = m.attr("Transfer");
  make_transfer_objects_fast(transfer);
  make_fast<&move_fast<&write_one>>(peer, "write");
  make_fast<&move_fast<&read_one>>(peer, "read");
  make_fast<&notify_fast>(peer, "notify");
  make_fast<&wait_fast>(transfer, "wait");
  make_fast<&wait_notify_fast>(m.attr("Endpoint"), "wait_notify");
}

}  // namespace zerohop::bindings
