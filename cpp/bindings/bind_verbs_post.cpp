// zh.verbs: work requests and posting.
#include <arpa/inet.h>
#include <pybind11/stl.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "bindings/verbs_objects.hpp"
#include "driver/verbs_call.hpp"
#include "rdma/verbs_text.hpp"

namespace zerohop::bindings {
namespace {

struct Verb {
  const char* name;
  ibv_wr_opcode opcode;
  bool remote;     // needs (address, rkey)
  bool immediate;  // needs imm
  bool atomic;
};

constexpr std::array<Verb, 7> kVerbs{{
    {"write", IBV_WR_RDMA_WRITE, true, false, false},
    {"write_with_imm", IBV_WR_RDMA_WRITE_WITH_IMM, true, true, false},
    {"read", IBV_WR_RDMA_READ, true, false, false},
    {"send", IBV_WR_SEND, false, false, false},
    {"send_with_imm", IBV_WR_SEND_WITH_IMM, false, true, false},
    {"fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD, true, false, true},
    {"compare_swap", IBV_WR_ATOMIC_CMP_AND_SWP, true, false, true},
}};

const Verb& find_verb(const std::string& name) {
  std::string names;
  for (const Verb& operation : kVerbs) {
    if (operation.name == name) return operation;
    names += (names.empty() ? "" : ", ") + std::string(operation.name);
  }
  throw py::value_error("no operation is called " + name + ": choose one of " + names);
}

void check_presence(bool given, bool needed, const char* argument, const Verb& operation) {
  if (given == needed) return;
  throw py::value_error(std::string(operation.name) + (needed ? " needs " : " takes no ") +
                        argument);
}

// Python integers wrap like the adapter's 64-bit arithmetic, so that -1 can be added.
std::uint64_t wrap(const py::int_& value) {
  const unsigned long long wrapped = PyLong_AsUnsignedLongLongMask(value.ptr());
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return wrapped;
}

using AddressAndKey = std::pair<std::uint64_t, std::uint32_t>;  // address, rkey

unsigned send_flags(bool signaled, bool inlined, bool fence) noexcept {
  unsigned flags = 0;
  if (signaled) flags |= IBV_SEND_SIGNALED;
  if (inlined) flags |= IBV_SEND_INLINE;
  if (fence) flags |= IBV_SEND_FENCE;
  return flags;
}

std::shared_ptr<SendRequest> make_request(const std::string& name, py::object local,
                                          std::optional<AddressAndKey> remote,
                                          std::optional<std::uint32_t> imm, py::int_ add,
                                          py::int_ compare, py::int_ swap, std::uint64_t wr_id,
                                          bool signaled, bool inlined, bool fence) {
  const Verb& operation = find_verb(name);
  check_presence(remote.has_value(), operation.remote, "remote=(address, rkey)", operation);
  check_presence(imm.has_value(), operation.immediate, "imm", operation);
  auto request = std::make_shared<SendRequest>();
  request->operation = name;
  request->local = LocalElements::parse(local);
  ibv_send_wr& wr = request->request;
  wr.wr_id = wr_id;
  wr.opcode = operation.opcode;
  wr.send_flags = send_flags(signaled, inlined, fence);
  if (imm) wr.imm_data = htonl(*imm);
  if (operation.atomic) {
    wr.wr.atomic.remote_addr = remote->first;
    wr.wr.atomic.rkey = remote->second;
    const bool adds = operation.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic.compare_add = wrap(adds ? add : compare);
    wr.wr.atomic.swap = wrap(swap);
  } else if (remote) {
    wr.wr.rdma.remote_addr = remote->first;
    wr.wr.rdma.rkey = remote->second;
  }
  return request;
}

std::string describe_request(const SendRequest& request) {
  const ibv_send_wr& wr = request.request;
  std::string text = "<SendRequest " + request.operation + " wr_id=" + std::to_string(wr.wr_id) +
                     " " + std::to_string(request.local.nbytes()) + " bytes in " +
                     std::to_string(request.local.size()) + " elements";
  if ((wr.send_flags & IBV_SEND_SIGNALED) == 0) text += ", unsignaled";
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) text += ", inline";
  if ((wr.send_flags & IBV_SEND_FENCE) != 0) text += ", fence";
  return text + ">";
}

[[noreturn]] void throw_not_taken(const rdma::QueuePair& queue_pair, std::size_t index,
                                  std::size_t count, const char* call, int result) {
  const int error_number = driver::errno_of(result);
  const rdma::QueuePairOptions& granted = queue_pair.options();
  std::string message = errno_message(call, error_number) + ": request " + std::to_string(index) +
                        " of " + std::to_string(count) + " and those after it were not accepted;  ";
  if (error_number == ENOMEM) {
    message += "the queue is full (send_depth " + std::to_string(granted.send_depth) +
               ", receive_depth " + std::to_string(granted.receive_depth) +
               "): poll completions first, unsignaled requests leave with the next signaled one";
  } else {
    message += "the queue pair is in state " + std::string(rdma::state_name(queue_pair.state())) +
               " and grants " + std::to_string(granted.send_sge) + " elements a send, " +
               std::to_string(granted.receive_sge) + " a receive and " +
               std::to_string(granted.inline_bytes) + " inline bytes";
  }
  throw VerbsError(message, error_number);
}

void post_chain(rdma::QueuePair& queue_pair,
                const std::vector<std::shared_ptr<SendRequest>>& chain) {
  if (chain.empty()) return;
  std::vector<ibv_send_wr> linked(chain.size());
  for (std::size_t i = 0; i < chain.size(); ++i) {
    linked[i] = chain[i]->request;
    linked[i].sg_list = chain[i]->local.data();
    linked[i].num_sge = chain[i]->local.size();
    linked[i].next = i + 1 < chain.size() ? &linked[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  const int result = queue_pair.post_send(linked.front(), &bad);
  if (result == 0) return;
  const auto index = static_cast<std::size_t>(bad - linked.data());
  throw_not_taken(queue_pair, index, linked.size(), "ibv_post_send", result);
}

void post_receive(rdma::QueuePair& queue_pair, py::object local, std::uint64_t wr_id) {
  LocalElements elements = LocalElements::parse(local);
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  request.sg_list = elements.data();
  request.num_sge = elements.size();
  ibv_recv_wr* bad = nullptr;
  const int result = queue_pair.post_receive(request, &bad);
  if (result != 0) throw_not_taken(queue_pair, 0, 1, "ibv_post_recv", result);
}

// Shared by the constructor of SendRequest and QueuePair.post_send.
template <typename Define>
void with_request_arguments(Define define) {
  define(py::arg("op"), py::arg("local") = py::none(), py::kw_only(),
         py::arg("remote") = py::none(), py::arg("imm") = py::none(), py::arg("add") = 0,
         py::arg("compare") = 0, py::arg("swap") = 0, py::arg("wr_id") = 0,
         py::arg("signaled") = true, py::arg("inline") = false, py::arg("fence") = false);
}

void bind_request(py::module_& m) {
  py::class_<SendRequest, std::shared_ptr<SendRequest>> cls(m, "SendRequest", R"(
One work request for a send queue, to be posted by QueuePair.post_many (man ibv_post_send).

op: "write", "write_with_imm", "read", "send", "send_with_imm", "fetch_add" or "compare_swap".
local: a MemoryRegion, a slice of one, a sequence of those, or None for no bytes. The bytes go from
    there (write, send) or come to there (read; atomics: the 8 bytes of the old value).
remote: (address, rkey) for write, read and atomics; atomics need an address that 8 divides.
imm: 32-bit value of the *_with_imm operations, delivered in the receiver's WC.imm_data.
add: for fetch_add; compare, swap: for compare_swap; modulo 2**64.
wr_id: 64-bit number returned in WC.wr_id.
signaled: whether a successful end shows in the completion queue; errors always do.
inline: copy the bytes while posting; the memory may then be reused at once.
fence: start only after all earlier reads and atomics have ended.

Nothing is kept alive after posting: hold the regions until the request has ended.)");
  with_request_arguments(
      [&cls](const auto&... arguments) { cls.def(py::init(&make_request), arguments...); });
  cls.def("__repr__", describe_request);
}

}  // namespace

void bind_verbs_post(py::module_& m, QueuePairClass& queue_pair) {
  bind_request(m);
  const auto post_one = [](rdma::QueuePair& q, const std::string& op, py::object local,
                           std::optional<AddressAndKey> remote, std::optional<std::uint32_t> imm,
                           py::int_ add, py::int_ compare, py::int_ swap, std::uint64_t wr_id,
                           bool signaled, bool inlined, bool fence) {
    post_chain(q,
               {make_request(op, std::move(local), remote, imm, std::move(add), std::move(compare),
                             std::move(swap), wr_id, signaled, inlined, fence)});
  };
  with_request_arguments([&](const auto&... arguments) {
    queue_pair.def("post_send", post_one, arguments...,
                   "Post one request; the arguments are those of SendRequest. Raises VerbsError "
                   "when it is not accepted, for instance because the queue is full.");
  });
  queue_pair
      .def("post_many", post_chain, py::arg("requests"), R"(
Post SendRequests as one chain with one doorbell. Raises VerbsError naming the first request that was not
accepted; those before it were.)")
      .def("post_receive", post_receive, py::arg("local") = py::none(), py::kw_only(),
           py::arg("wr_id") = 0, R"(
Offer memory to one incoming send, or to one write_with_imm, which needs none (man ibv_post_recv).
Hold the regions until it has ended.)");
}

}  // namespace zerohop::bindings
