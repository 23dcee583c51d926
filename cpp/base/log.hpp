// What happened that nobody has to act on at once: connections, routes. One sentence each, for
// whoever keeps a log; not for anything that happens with every transfer.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

namespace zerohop {

enum class Level : std::uint8_t {
  debug = 10,
  info = 20,
  warning = 30
};  // as Python's logging has it

// topic: a literal, "route". Called from any thread; only passes it on.
using LogSink = void (*)(Level level, const char* topic, const std::string& sentence) noexcept;

namespace detail {
inline std::atomic<LogSink> log_sink{nullptr};
}  // namespace detail

// Null, as at first: nobody keeps a log.
inline void set_log_sink(LogSink sink) noexcept { detail::log_sink.store(sink); }

// sentence: makes it, where somebody keeps a log. Without memory for it nothing is told.
template <class Sentence>
void log(Level level, const char* topic, const Sentence& sentence) noexcept {
  const LogSink sink = detail::log_sink.load(std::memory_order_acquire);
  if (sink == nullptr) return;
  try {
    sink(level, topic, sentence());
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace zerohop
