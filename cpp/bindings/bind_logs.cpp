// Log sentences on their way to a Python thread.
//
// Threads of the core have no GIL, and log handlers may run anything: so the two never meet.
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/locks.hpp"
#include "base/log.hpp"
#include "bindings/topics.hpp"

namespace zerohop::bindings {
namespace {

namespace py = pybind11;

struct Sentence {
  Level level;
  const char* topic;
  std::string text;
};

// When full, further sentences are dropped, but counted.
struct Outbox {
  static constexpr std::size_t kMost = 1024;
  Mutex<Rank::log_outbox> mutex;
  std::vector<Sentence> sentences;
  std::uint64_t dropped = 0;
  int bell = -1;  // eventfd of the reader; -1: no reader
};
// Replaced in a child of fork(), where the mutex may be locked for ever; the old one is leaked.
std::atomic<Outbox*> current{new Outbox};

void put_sentence(Level level, const char* topic, const std::string& text) noexcept {
  Outbox& outbox = *current.load();
  const std::lock_guard lock(outbox.mutex);
  if (outbox.bell < 0) return;
  try {
    if (outbox.sentences.size() == Outbox::kMost) throw std::bad_alloc();
    outbox.sentences.push_back({level, topic, text});
  } catch (const std::exception&) {
    ++outbox.dropped;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(outbox.bell, &one, sizeof one);
}

void send_logs(int bell) {
  Outbox& outbox = *current.load();
  const std::lock_guard lock(outbox.mutex);
  outbox.bell = bell;
  if (bell < 0) outbox.sentences.clear();
  set_log_sink(bell < 0 ? nullptr : &put_sentence);
}

py::tuple take_logs() {
  std::vector<Sentence> taken;
  std::uint64_t dropped = 0;
  Outbox& outbox = *current.load();
  {
    const std::lock_guard lock(outbox.mutex);
    taken.swap(outbox.sentences);
    std::swap(dropped, outbox.dropped);
  }
  py::list sentences;
  for (const Sentence& each : taken) {
    // A message whose bytes are not UTF-8 must not block the others.
    const auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
        each.text.data(), static_cast<py::ssize_t>(each.text.size()), "backslashreplace"));
    if (!text) throw py::error_already_set();
    sentences.append(py::make_tuple(static_cast<int>(each.level), each.topic, text));
  }
  return py::make_tuple(sentences, dropped);
}

void forget_logs() {
  set_log_sink(nullptr);
  current.store(new Outbox);
}

}  // namespace

void bind_logs(py::module_& m) {
  m.def("send_logs", &send_logs, py::arg("bell"),
        "From now on, keep sentences for take_logs() and signal that eventfd; -1: stop.");
  m.def("forget_logs", &forget_logs, "Call in a child made by fork(): keep no sentences.");
  m.def("take_logs", &take_logs,
        "Tuples of level, topic and sentence, and how many were dropped for lack of room.");
}

}  // namespace zerohop::bindings
