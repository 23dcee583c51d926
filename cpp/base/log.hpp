// Events that need no immediate action: connections, routes. One sentence each; never for something
// that happens with every transfer.
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

// topic: a literal such as "route". Called from any thread; must only pass the sentence on.
using LogSink = void (*)(Level level, const char* topic, const std::string& sentence) noexcept;

namespace detail {
inline std::atomic<LogSink> log_sink{nullptr};
}  // namespace detail

// Null, the initial value: nothing is logged.
inline void set_log_sink(LogSink sink) noexcept { detail::log_sink.store(sink); }

// sentence: builds the text; called only if a sink is set. Out of memory: nothing is logged.
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
