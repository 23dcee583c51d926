// zh.verbs: shared receive queues.
#include <pybind11/stl.h>

#include "base/error.hpp"
#include "bindings/gil.hpp"
#include "bindings/verbs_objects.hpp"
#include "driver/verbs_call.hpp"
#include "rdma/shared_receive_queue.hpp"

namespace zerohop::bindings {
namespace {

using rdma::SharedReceiveQueue;

std::shared_ptr<SharedReceiveQueue> make_shared_queue(
    std::shared_ptr<rdma::ProtectionDomain> domain, std::uint32_t depth) {
  const GilReleased released;
  return SharedReceiveQueue::create(std::move(domain), depth);
}

void post_shared(SharedReceiveQueue& queue, py::object local, std::uint64_t wr_id) {
  LocalElements elements = LocalElements::parse(local);
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  request.sg_list = elements.data();
  request.num_sge = elements.size();
  ibv_recv_wr* bad = nullptr;
  const int result = queue.post(request, &bad);
  if (result == 0) return;
  const int error_number = driver::errno_of(result);
  throw VerbsError(errno_message("ibv_post_srq_recv", error_number) +
                       ": not accepted: the queue is full, or the list has more elements than one: "
                       "wait for completions of receives first",
                   error_number);
}

}  // namespace

void bind_verbs_srq(py::module_& m) {
  py::class_<SharedReceiveQueue, std::shared_ptr<SharedReceiveQueue>>(m, "SharedReceiveQueue", R"(
Receives that all queue pairs made with it take from (man ibv_create_srq). depth: how many it holds.)")
      .def(py::init(&make_shared_queue), py::arg("pd"), py::arg("depth") = 64)
      .def("post_receive", post_shared, py::arg("local") = py::none(), py::kw_only(),
           py::arg("wr_id") = 0, R"(
Offer memory, one element, to the next incoming send of any of its queue pairs (man ibv_post_srq_recv). Hold the
regions until it has ended. Raises VerbsError when the queue is full.)");
}

}  // namespace zerohop::bindings
