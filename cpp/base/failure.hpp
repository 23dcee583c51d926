// An error as a plain value: kept by one thread, thrown anew by each thread that asks. (A shared
// std::exception_ptr would hand one exception object to several threads.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace zerohop {

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
  std::size_t effect_words = 0;  // how many bytes at the end of the message tell of the effect
  std::uint64_t offset = 0;      // of what an integrity failure is about: bytes
  std::uint64_t nbytes = 0;

  // The exception being handled, to be called inside a catch block.
  static Failure of_current_exception();

  // Changes the effect, and the words about it that end the message: " (nothing was written)",
  // " (some of the data may have been written)".
  void set_effect(Effect changed);
  Failure with_effect(Effect changed) && {
    set_effect(changed);
    return std::move(*this);
  }

  // Adds to the cause, before those words.
  void explain(const std::string& more);

  // Throws the type that belongs to `kind`.
  [[noreturn]] void raise() const;
};

}  // namespace zerohop
