// Recordings of what this process does.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/recording.hpp"
#include "bindings/topics.hpp"

namespace zerohop::bindings {
namespace {

namespace py = pybind11;
using trace::Event;
using trace::Recording;

py::str text_of(std::string_view text) {  // may be cut in the middle of a character
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

py::dict to_dict(const Event& event, bool ended) {
  using namespace py::literals;
  py::dict all("what"_a = event.what, "begin"_a = event.begin, "nbytes"_a = event.nbytes,
               "peer"_a = text_of(event.peer.view()), "route"_a = text_of(event.route.view()),
               "device"_a = text_of(event.device.view()));
  all["end"] = ended ? py::object(py::int_(event.end)) : py::none();
  if (!ended) return all;
  all["failure"] = text_of(event.failure.view());
  all["slot"] = event.slot;
  all["value"] = event.value;
  return all;
}

void start_recording(std::size_t most) {
  if (trace::recording()) {
    throw std::runtime_error("this process is being recorded already: end that one first");
  }
  trace::set_recording(std::make_shared<Recording>(most));
}

py::tuple stop_recording() {
  const std::shared_ptr<Recording> recording = trace::set_recording(nullptr);
  if (!recording) throw std::runtime_error("this process is not being recorded");
  py::list events;
  for (std::size_t i = 0; i < recording->claimed(); ++i) {
    const Event& event = recording->event(i);
    const auto state = event.state.load(std::memory_order_acquire);
    if (state == Event::State::withdrawn) continue;
    events.append(to_dict(event, state == Event::State::ended));
  }
  return py::make_tuple(events, recording->dropped());
}

}  // namespace

void bind_recording(py::module_& m) {
  m.def("start_recording", &start_recording, py::arg("most"),
        "Record at most so many events. RuntimeError: a recording is on already.");
  m.def("forget_recording", &trace::forget_recording, "Call in a child made by fork().");
  m.def("stop_recording", &stop_recording, R"(
The events as dicts in the order in which they began, and how many did not fit. Their "end" is None for events
still in progress; times are nanoseconds of time.monotonic_ns().)");
}

}  // namespace zerohop::bindings
