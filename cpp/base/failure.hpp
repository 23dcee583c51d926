// An error as a plain value: kept by one thread, thrown anew by each thread that asks. (A shared
// std::exception_ptr would hand one exception object to several threads.)
#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace zerohop {

// " (some of the data may have been written)", " (nothing was written)": what ends a message about
// a transfer.
std::string effect_words(Effect effect);

struct Failure {
  enum class Kind {
    error,
    verbs,
    cuda,
    peer_lost,
    timeout,
    registration,
    route_unavailable,
    authentication,
    protocol,
    integrity,
    invalid_argument
  };

  Kind kind = Kind::error;
  std::string message;
  int code = 0;
  Effect effect = Effect::nothing;
  std::uint64_t offset = 0;  // of what an integrity failure is about: bytes
  std::uint64_t nbytes = 0;

  // The exception being handled, to be called inside a catch block.
  static Failure of_current_exception();

  // Changes the effect, and the words about it that end the message.
  void set_effect(Effect changed);

  // Adds to the cause, before those words.
  void explain(const std::string& more);

  // Throws the type that belongs to `kind`.
  [[noreturn]] void raise() const;
};

}  // namespace zerohop
