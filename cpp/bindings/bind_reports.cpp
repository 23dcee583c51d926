#include "bindings/bind_reports.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <new>
#include <string>
#include <string_view>

#include "base/locks.hpp"
#include "base/report.hpp"

namespace zerohop::bindings {
namespace {

namespace py = pybind11;

// Sentences for the main thread. Of fixed size: reports come from destructors, which must not
// allocate. When full, further sentences are dropped, but counted.
struct Waiting {
  static constexpr std::size_t kMost = 16;
  Mutex<Rank::reports> mutex;
  std::array<std::array<char, 256>, kMost> sentences{};
  std::size_t count = 0;
  std::size_t dropped = 0;
};
Waiting reports;

// A child of fork() has other threads, and must not report failures of its parent.
[[maybe_unused]] const int renewed_by_fork =
    ::pthread_atfork(nullptr, nullptr, [] { new (&reports) Waiting; });

void warn(const char* sentence) noexcept {
  // Where warnings are errors there is no caller to raise them to.
  if (PyErr_WarnEx(PyExc_RuntimeWarning, sentence, 1) != 0) PyErr_WriteUnraisable(nullptr);
}

// Runs in the main thread, with the GIL, between two bytecodes.
int warn_all(void*) noexcept {
  decltype(reports.sentences) sentences;
  std::size_t count = 0;
  std::size_t dropped = 0;
  {
    const std::lock_guard lock(reports.mutex);
    sentences = reports.sentences;
    std::swap(count, reports.count);
    std::swap(dropped, reports.dropped);
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
    const std::lock_guard lock(reports.mutex);
    if (reports.count == Waiting::kMost) {
      ++reports.dropped;
    } else {
      auto& slot = reports.sentences[reports.count++];
      slot[sentence.copy(slot.data(), slot.size() - 1)] = '\0';
    }
  }
  // Needs no GIL. If the list of pending calls is full, either it holds one of ours already, or the
  // next report adds it.
  Py_AddPendingCall(warn_all, nullptr);
}

}  // namespace

void bind_reports(py::module_& m) {
  m.def(
      "report", [](const std::string& sentence) { report(sentence); }, py::arg("sentence"),
      "Report a failure that cannot be raised: it becomes a RuntimeWarning in the main thread.");
  set_report_sink(to_python);
  // From here on no bytecode runs that could execute a pending call: back to stderr.
  py::module_::import("atexit").attr("register")(
      py::cpp_function([] { set_report_sink(nullptr); }));
}

}  // namespace zerohop::bindings
