#include "bindings/bind_reports.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

#include "base/locks.hpp"
#include "base/report.hpp"

namespace zerohop::bindings {
namespace {

namespace py = pybind11;

// Sentences on their way to the main thread. Of fixed size: reports come from destructors, which
// must not allocate. More than fit at once are dropped, but counted.
struct Waiting {
  static constexpr std::size_t kMost = 16;
  Mutex<Rank::reports> mutex;
  std::array<std::array<char, 256>, kMost> sentences{};
  std::size_t count = 0;
  std::size_t dropped = 0;
};
Waiting waiting;

void warn(const char* sentence) noexcept {
  // Where warnings are errors there is nobody to raise them to.
  if (PyErr_WarnEx(PyExc_RuntimeWarning, sentence, 1) != 0) PyErr_WriteUnraisable(nullptr);
}

// Runs in the main thread, with the GIL, between two bytecodes.
int warn_all(void*) noexcept {
  decltype(waiting.sentences) sentences;
  std::size_t count = 0;
  std::size_t dropped = 0;
  {
    const std::lock_guard lock(waiting.mutex);
    sentences = waiting.sentences;
    std::swap(count, waiting.count);
    std::swap(dropped, waiting.dropped);
  }
  for (std::size_t i = 0; i < count; ++i) warn(sentences[i].data());
  if (dropped > 0) {
    char text[64];
    std::snprintf(text, sizeof text, "%zu more failures were reported at once", dropped);
    warn(text);
  }
  return 0;
}

void to_python(std::string_view sentence) noexcept {
  {
    const std::lock_guard lock(waiting.mutex);
    if (waiting.count == Waiting::kMost) {
      ++waiting.dropped;
    } else {
      auto& slot = waiting.sentences[waiting.count++];
      slot[sentence.copy(slot.data(), slot.size() - 1)] = '\0';
    }
  }
  // Needs no GIL. A full list of pending calls holds one of ours already, or the next report adds
  // it.
  Py_AddPendingCall(warn_all, nullptr);
}

}  // namespace

void bind_reports(py::module_& m) {
  m.def(
      "report", [](const std::string& sentence) { report(sentence); }, py::arg("sentence"),
      "Report a failure that cannot be raised: it becomes a RuntimeWarning in the main thread.");
  set_report_sink(to_python);
  // From here on no bytecode runs that could carry a pending call: back to stderr.
  py::module_::import("atexit").attr("register")(
      py::cpp_function([] { set_report_sink(nullptr); }));
}

}  // namespace zerohop::bindings
