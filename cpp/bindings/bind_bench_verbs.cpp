// The benchmark's loops on bare queue pairs, run without the GIL. Not part of the public API.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <vector>

#include "bindings/convert.hpp"
#include "bindings/gil.hpp"
#include "bindings/topics.hpp"
#include "bindings/verbs_objects.hpp"
#include "rdma/loops.hpp"

namespace zerohop::bindings {
namespace {

using rdma::CompletionQueue;
using rdma::QueuePair;
using Samples = std::vector<double>;
using ByteArray = py::array_t<std::uint8_t, py::array::c_style>;
using QueuePairs = std::vector<std::shared_ptr<QueuePair>>;

ibv_send_wr work_request(SendRequest& request) {
  ibv_send_wr made = request.request;
  made.sg_list = request.local.data();
  made.num_sge = request.local.size();
  return made;
}

std::uint8_t& last_byte(ByteArray& array) {
  if (array.size() == 0) throw py::value_error("memory to be polled must not be empty");
  return array.mutable_data()[array.size() - 1];
}

Samples latency(QueuePair& queue_pair, CompletionQueue& queue, SendRequest& request,
                std::size_t times, double timeout) {
  const ibv_send_wr made = work_request(request);
  const GilReleased released;
  Samples seconds(times);
  rdma::post_and_poll(queue_pair, queue, made, seconds, within(timeout));
  return seconds;
}

Samples bench_verbs_ping_pong(QueuePair& queue_pair, CompletionQueue& queue, SendRequest& request,
                              ByteArray ball, ByteArray landing, std::size_t rounds, bool first,
                              double timeout) {
  const ibv_send_wr made = work_request(request);
  std::uint8_t& thrown = last_byte(ball);
  std::uint8_t& caught = last_byte(landing);
  const GilReleased released;
  Samples seconds(rounds);
  rdma::ping_pong({queue_pair, queue, made, thrown, caught, first}, seconds, within(timeout));
  return seconds;
}

double bench_verbs_stream(const QueuePairs& queue_pairs, CompletionQueue& queue,
                          SendRequest& request, std::uint64_t times, std::uint64_t window,
                          double timeout) {
  if (queue_pairs.empty() || window == 0)
    throw py::value_error("at least one queue pair and a window are needed");
  const ibv_send_wr made = work_request(request);
  std::vector<QueuePair*> all;
  for (const auto& queue_pair : queue_pairs) all.push_back(queue_pair.get());
  const GilReleased released;
  return rdma::keep_posted(all, queue, made, times, window, within(timeout));
}

double receive(QueuePair& queue_pair, CompletionQueue& queue, py::object local, std::uint64_t times,
               std::uint64_t posted, double timeout) {
  LocalElements elements = LocalElements::parse(local);
  ibv_recv_wr request{};
  request.sg_list = elements.data();
  request.num_sge = elements.size();
  const GilReleased released;
  return rdma::keep_receiving(queue_pair, queue, request, times, posted, within(timeout));
}

}  // namespace

void bind_bench_verbs(py::module_& m) {
  using py::arg;
  m.def("bench_verbs_latency", &latency, arg("queue_pair"), arg("cq"), arg("request"), arg("times"),
        arg("timeout"), "Seconds of each request from its post to its completion.");
  m.def("bench_verbs_ping_pong", &bench_verbs_ping_pong, arg("queue_pair"), arg("cq"),
        arg("request"), arg("ball").noconvert(), arg("landing").noconvert(), arg("rounds"),
        arg("first"), arg("timeout"),
        "Seconds of each half round trip of a write whose last byte is polled.");
  m.def("bench_verbs_stream", &bench_verbs_stream, arg("queue_pairs"), arg("cq"), arg("request"),
        arg("times"), arg("window"), arg("timeout"),
        "Seconds of `times` requests on queue pairs in turn, with `window` posted in total.");
  m.def("bench_verbs_receive", &receive, arg("queue_pair"), arg("cq"), arg("local"), arg("times"),
        arg("posted"), arg("timeout"),
        "Seconds until `times` messages have arrived; `posted` of their receives are posted "
        "already.");
}

}  // namespace zerohop::bindings
