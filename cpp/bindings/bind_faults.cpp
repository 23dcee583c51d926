// Fault injection, configured as text; Python's Faults is a value with the same words.
#include <pybind11/pybind11.h>

#include <string>

#include "bindings/bind_endpoint.hpp"
#include "bindings/gil.hpp"
#include "softhca/faults.hpp"

namespace zerohop::bindings {
namespace {

using engine::Endpoint;
using softhca::Faults;

double in_seconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e9; }

py::dict words_of(const std::string& text) {
  using namespace py::literals;
  const Faults faults = Faults::parse(text);
  return py::dict("seed"_a = faults.seed, "drop"_a = faults.drop, "duplicate"_a = faults.duplicate,
                  "corrupt"_a = faults.corrupt, "cut"_a = faults.cut, "partial"_a = faults.partial,
                  "alter"_a = faults.alter, "rnr"_a = faults.rnr,
                  "delay"_a = in_seconds(faults.delay), "delay_rate"_a = faults.delay_rate,
                  "slow"_a = in_seconds(faults.slow), "fail"_a = faults.fail,
                  "fail_status"_a = softhca::status_word(faults.fail_status),
                  "remove"_a = faults.remove, "max_qp"_a = faults.max_qp,
                  "max_cq"_a = faults.max_cq, "max_mr"_a = faults.max_mr);
}

}  // namespace

void bind_faults(py::module_& m, EndpointClass& type) {
  m.def("fault_words", &words_of, py::arg("text"),
        "All words of faults with their values, times in seconds. Raises ValueError.");
  type.def(
      "_put_faults",
      [](Endpoint& self, const std::string& text) {
        const Faults faults = Faults::parse(text);
        without_gil([&] { self.set_faults(faults); });
      },
      py::arg("text"), "Sets faults from text.");
  type.def(
      "_faults_text", [](const Endpoint& self) { return self.faults().text(); },
      "The words of the faults set; empty: none.");
}

}  // namespace zerohop::bindings
