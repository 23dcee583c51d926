// zh.verbs: completion queues and work completions.
#include <arpa/inet.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "bindings/verbs_objects.hpp"
#include "driver/verbs_call.hpp"
#include "rdma/verbs_text.hpp"

namespace zerohop::bindings {
namespace {

using rdma::CompletionQueue;

// A copy of one ibv_wc. On errors only wr_id, status, qp_num and vendor_err are valid.
struct WorkCompletion {
  ibv_wc wc;

  bool ok() const noexcept { return wc.status == IBV_WC_SUCCESS; }
  std::optional<std::string_view> opcode() const noexcept {
    if (!ok()) return std::nullopt;
    return rdma::opcode_name(wc.opcode);
  }
  std::optional<std::uint32_t> immediate() const noexcept {
    if (!ok() || (wc.wc_flags & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return ntohl(wc.imm_data);
  }
};

std::string describe_completion(const WorkCompletion& completion) {
  const ibv_wc& wc = completion.wc;
  std::string text =
      "<WC wr_id=" + std::to_string(wc.wr_id) + " qp_num=" + rdma::hex(wc.qp_num) + " ";
  if (!completion.ok()) {
    return text + rdma::completion_status_name(wc.status) + ": " +
           rdma::completion_status_help(wc.status) + ">";
  }
  text += rdma::opcode_name(wc.opcode);
  if ((wc.opcode & IBV_WC_RECV) != 0) text += " " + std::to_string(wc.byte_len) + " bytes";
  if (const auto imm = completion.immediate()) text += " imm_data=" + std::to_string(*imm);
  return text + ">";
}

std::vector<WorkCompletion> poll_completions(CompletionQueue& queue, int most) {
  if (most < 1) throw py::value_error("max must be 1 or more");
  std::vector<ibv_wc> taken(static_cast<std::size_t>(std::min(most, queue.depth())));
  const int count = queue.poll(taken);
  if (count < 0) driver::throw_verbs_error("ibv_poll_cq", EIO);
  std::vector<WorkCompletion> completions;
  for (int i = 0; i < count; ++i) completions.push_back({taken[static_cast<std::size_t>(i)]});
  return completions;
}

bool wait_completion(CompletionQueue& queue, double timeout) {
  if (!wait_readable(queue.event_fd(), timeout)) return false;
  if (const int error = queue.consume_events(); error != 0) {
    driver::throw_verbs_error("ibv_get_cq_event of " + queue.device().name(), error);
  }
  return true;
}

void bind_work_completion(py::module_& m) {
  py::class_<WorkCompletion>(m, "WC", "A work completion: how one request ended (man ibv_poll_cq).")
      .def_property_readonly(
          "wr_id", [](const WorkCompletion& c) { return c.wc.wr_id; },
          "The number that the request was posted with.")
      .def_property_readonly("ok", &WorkCompletion::ok)
      .def_property_readonly(
          "status",
          [](const WorkCompletion& c) { return rdma::completion_status_name(c.wc.status); },
          "\"IBV_WC_SUCCESS\" or the name of the error.")
      .def_property_readonly(
          "help", [](const WorkCompletion& c) { return rdma::completion_status_help(c.wc.status); },
          "Cause and remedy of the status in one sentence.")
      .def_property_readonly("opcode", &WorkCompletion::opcode,
                             "\"RDMA_WRITE\", \"RECV\", ...; None on errors.")
      .def_property_readonly(
          "byte_len", [](const WorkCompletion& c) { return c.ok() ? c.wc.byte_len : 0; },
          "Bytes that arrived (receives and reads); 0 on errors.")
      .def_property_readonly("imm_data", &WorkCompletion::immediate,
                             "The immediate value received, or None.")
      .def_property_readonly("qp_num", [](const WorkCompletion& c) { return c.wc.qp_num; })
      .def_property_readonly("vendor_err", [](const WorkCompletion& c) { return c.wc.vendor_err; })
      .def("__repr__", describe_completion);
}

}  // namespace

void bind_verbs_completion(py::module_& m) {
  bind_work_completion(m);
  py::class_<CompletionQueue, std::shared_ptr<CompletionQueue>>(m, "CompletionQueue", R"(
Where requests of queue pairs end (man ibv_create_cq).

depth: how many completions fit; further ones are lost for good (CQ_ERR).)")
      .def(py::init(&CompletionQueue::create), py::arg("device"), py::arg("depth") = 256)
      .def_property_readonly("depth", &CompletionQueue::depth)
      .def("resize", &CompletionQueue::resize, py::arg("depth"),
           "Change the depth (man ibv_resize_cq).")
      .def("poll", poll_completions, py::arg("max") = 16,
           "The available completions, at most max of them; never waits.")
      .def(
          "arm", [](CompletionQueue& q) { driver::check_errno(q.arm(), "ibv_req_notify_cq"); },
          R"(
Ask for one event at the next completion. Poll once more afterwards: a completion that arrived before this call
gives no event (man ibv_req_notify_cq).)")
      .def("wait", wait_completion, py::arg("timeout") = 30.0,
           "Wait for the event that arm() requested; False when timeout seconds have passed.")
      .def("__repr__", [](const CompletionQueue& q) {
        return "<CompletionQueue of " + q.device().name() + ", depth " + std::to_string(q.depth()) +
               ">";
      });
}

}  // namespace zerohop::bindings
