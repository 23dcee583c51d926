// zh.verbs: queue pairs and their addresses.
#include <pybind11/stl.h>

#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "bindings/gil.hpp"
#include "bindings/verbs_objects.hpp"
#include "rdma/shared_receive_queue.hpp"
#include "rdma/verbs_text.hpp"

namespace zerohop::bindings {
namespace {

using rdma::CompletionQueue;
using rdma::ProtectionDomain;
using rdma::QueuePair;
using rdma::QueuePairAddress;
using rdma::QueuePairOptions;
using rdma::SharedReceiveQueue;

using WithoutGil = py::call_guard<GilReleased>;

// The wire form: number, psn (4 bytes each), lid (2), all big-endian, gid (16), mtu, reads_in,
// reads_out (1 each).
constexpr std::size_t kAddressBytes = 4 + 4 + 2 + 16 + 3;

template <typename T>
void put(std::string& bytes, T value) {
  for (int shift = 8 * (sizeof(T) - 1); shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift);
  }
}

template <typename T>
T take(std::string_view& bytes) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value << 8 | static_cast<std::uint8_t>(bytes[i]));
  }
  bytes.remove_prefix(sizeof(T));
  return value;
}

py::bytes to_bytes(const QueuePairAddress& address) {
  std::string bytes;
  put(bytes, address.number);
  put(bytes, address.psn);
  put(bytes, address.lid);
  bytes.append(reinterpret_cast<const char*>(address.gid.raw), sizeof address.gid.raw);
  put(bytes, address.mtu);
  put(bytes, address.reads_in);
  put(bytes, address.reads_out);
  return py::bytes(bytes);
}

QueuePairAddress from_bytes(const py::bytes& encoded) {
  std::string_view bytes = encoded;
  if (bytes.size() != kAddressBytes) {
    throw ProtocolError("a queue pair address has " + std::to_string(kAddressBytes) +
                        " bytes, not " + std::to_string(bytes.size()) +
                        ": pass what QueuePairAddress.to_bytes() returned");
  }
  QueuePairAddress address;
  address.number = take<std::uint32_t>(bytes);
  address.psn = take<std::uint32_t>(bytes);
  address.lid = take<std::uint16_t>(bytes);
  std::memcpy(address.gid.raw, bytes.data(), sizeof address.gid.raw);
  bytes.remove_prefix(sizeof address.gid.raw);
  address.mtu = take<std::uint8_t>(bytes);
  address.reads_in = take<std::uint8_t>(bytes);
  address.reads_out = take<std::uint8_t>(bytes);
  if (rdma::mtu_bytes(address.mtu) == 0) {
    throw ProtocolError("these bytes are not a queue pair address: the MTU is invalid");
  }
  return address;
}

void bind_address(py::module_& m) {
  py::class_<QueuePairAddress>(m, "QueuePairAddress", R"(
What the other side needs to connect: a plain value; to_bytes() may travel over any channel.)")
      .def_readonly("number", &QueuePairAddress::number, "Queue pair number, 24 bits.")
      .def_readonly("psn", &QueuePairAddress::psn, "First packet sequence number sent, 24 bits.")
      .def_property_readonly("gid", [](const QueuePairAddress& a) { return rdma::gid_text(a.gid); })
      .def_readonly("lid", &QueuePairAddress::lid, "0 on RoCE and on the software HCA.")
      .def_property_readonly(
          "mtu", [](const QueuePairAddress& a) { return rdma::mtu_bytes(a.mtu); }, "In bytes.")
      .def_readonly("reads_in", &QueuePairAddress::reads_in,
                    "Most reads and atomics that this side serves at once.")
      .def_readonly("reads_out", &QueuePairAddress::reads_out,
                    "Most reads and atomics that this side has outstanding.")
      .def("to_bytes", to_bytes)
      .def_static("from_bytes", from_bytes, py::arg("encoded"),
                  "Raises ProtocolError for anything that to_bytes() did not return.")
      .def(
          "__eq__",
          [](const QueuePairAddress& a, const py::object& other) {
            return py::isinstance<QueuePairAddress>(other) &&
                   to_bytes(a).equal(to_bytes(other.cast<QueuePairAddress>()));
          },
          py::arg("other"))
      .def("__hash__", [](const QueuePairAddress& a) { return py::hash(to_bytes(a)); })
      .def(py::pickle(&to_bytes, &from_bytes))
      .def("__repr__", [](const QueuePairAddress& a) {
        return "<QueuePairAddress " + rdma::hex(a.number) + " at " + rdma::gid_text(a.gid) +
               ", psn " + rdma::hex(a.psn) + ", mtu " + std::to_string(rdma::mtu_bytes(a.mtu)) +
               ">";
      });
}

std::unique_ptr<QueuePair> create(std::shared_ptr<ProtectionDomain> domain,
                                  std::shared_ptr<CompletionQueue> queue,
                                  std::optional<std::shared_ptr<CompletionQueue>> receive_queue,
                                  std::uint32_t send_depth, std::uint32_t receive_depth,
                                  std::uint32_t send_sge, std::uint32_t receive_sge,
                                  std::uint32_t inline_bytes, std::uint8_t timeout,
                                  std::uint8_t retries, std::uint8_t rnr_retries,
                                  std::uint8_t rnr_timer,
                                  std::optional<std::shared_ptr<SharedReceiveQueue>> shared) {
  auto receives = receive_queue.value_or(queue);
  const QueuePairOptions options{.send_depth = send_depth,
                                 .receive_depth = receive_depth,
                                 .send_sge = send_sge,
                                 .receive_sge = receive_sge,
                                 .inline_bytes = inline_bytes,
                                 .timeout = timeout,
                                 .retries = retries,
                                 .rnr_retries = rnr_retries,
                                 .rnr_timer = rnr_timer};
  const GilReleased released;
  return QueuePair::create(std::move(domain), std::move(queue), std::move(receives), options,
                           std::move(shared).value_or(nullptr));
}

Facts granted_options(const QueuePair& queue_pair) {
  const QueuePairOptions& o = queue_pair.options();
  Facts granted;
  granted["send_depth"] = o.send_depth;
  granted["receive_depth"] = o.receive_depth;
  granted["send_sge"] = o.send_sge;
  granted["receive_sge"] = o.receive_sge;
  granted["inline_bytes"] = o.inline_bytes;
  granted["timeout"] = o.timeout;
  granted["retries"] = o.retries;
  granted["rnr_retries"] = o.rnr_retries;
  granted["rnr_timer"] = o.rnr_timer;
  return granted;
}

void bind_constructor(QueuePairClass& cls) {
  const QueuePairOptions defaults;
  cls.def(py::init(&create), py::arg("pd"), py::arg("cq"), py::arg("receive_cq") = py::none(),
          py::kw_only(), py::arg("send_depth") = defaults.send_depth,
          py::arg("receive_depth") = defaults.receive_depth,
          py::arg("send_sge") = defaults.send_sge, py::arg("receive_sge") = defaults.receive_sge,
          py::arg("inline_bytes") = defaults.inline_bytes, py::arg("timeout") = defaults.timeout,
          py::arg("retries") = defaults.retries, py::arg("rnr_retries") = defaults.rnr_retries,
          py::arg("rnr_timer") = defaults.rnr_timer, py::arg("srq") = py::none());
}

void bind_states(QueuePairClass& cls) {
  cls.def("init", &QueuePair::to_init, py::arg("access") = py::none(), WithoutGil(),
          "RESET to INIT; access: the remote operations that peers may do, as Access flags; by "
          "default all that the device supports.")
      .def(
          "rtr",
          [](QueuePair& self, const rdma::QueuePairAddress& remote) {
            self.to_ready_to_receive(remote);
          },
          py::arg("remote"), WithoutGil(),
          "INIT to RTR: receive from the queue pair at the remote address.")
      .def("rts", &QueuePair::to_ready_to_send, py::arg("remote"), WithoutGil(),
           "RTR to RTS: send to it as well.")
      .def(
          "connect",
          [](QueuePair& self, const rdma::QueuePairAddress& remote) { self.connect(remote); },
          py::arg("remote"), WithoutGil(), "RESET to RTS through init, rtr and rts.")
      .def("error", &QueuePair::to_error, WithoutGil(),
           "To ERR: posted requests end with IBV_WC_WR_FLUSH_ERR.")
      .def("reset", &QueuePair::to_reset, WithoutGil(),
           "To RESET: posted requests vanish without a completion.")
      .def_property_readonly(
          "state", [](const QueuePair& q) { return rdma::state_name(q.state()); },
          "\"RESET\", \"INIT\", \"RTR\", \"RTS\", \"SQD\", \"SQE\" or \"ERR\", asked of the "
          "device.");
}

}  // namespace

void bind_verbs_queue_pair(py::module_& m) {
  bind_address(m);
  QueuePairClass cls(m, "QueuePair", R"(
A reliable-connected (RC) queue pair, from RESET to RTS and back (man ibv_create_qp, ibv_modify_qp).

cq takes the completions of both directions unless receive_cq is given. Depths count work requests, *_sge count
scatter/gather elements; the device may grant more or less, see options. timeout: the local ACK timeout is
4.096 us * 2**timeout; rnr_retries: 7 means for ever; rnr_timer: code of the pause that a receiver without
posted receives requests (12: 0.64 ms). srq: a SharedReceiveQueue of the same pd, in place of receives of its own.)");
  bind_constructor(cls);
  bind_states(cls);
  bind_verbs_post(m, cls);
  cls.def_property_readonly("number", &QueuePair::number, "Queue pair number, 24 bits.")
      .def_property_readonly("options", granted_options, "The options as the device granted them.")
      .def("address", &QueuePair::address, "The QueuePairAddress that the other side needs.")
      .def("__repr__", [](const QueuePair& q) {
        return "<QueuePair " + rdma::hex(q.number()) + " on " + q.device().name() + ": " +
               rdma::state_name(q.state()) + ">";
      });
}

}  // namespace zerohop::bindings
