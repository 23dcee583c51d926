// An error as a plain value: stored by one thread, thrown by each thread that asks. (A shared
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
  std::size_t effect_words = 0;  // length in bytes of the part of the message about the effect
  std::uint64_t offset = 0;      // of an integrity failure, bytes
  std::uint64_t nbytes = 0;

  // The exception being handled. Call only inside a catch block.
  static Failure of_current_exception();

  // Changes the effect, and the part of the message that states it: " (nothing was written)", "
  // (some of the data may have been written)".
  void set_effect(Effect changed);
  Failure with_effect(Effect changed) && {
    set_effect(changed);
    return std::move(*this);
  }

  // Appends to the cause, before the part about the effect.
  void explain(const std::string& more);

  // Throws the exception type of `kind`.
  [[noreturn]] void raise() const;
};

}  // namespace zerohop
