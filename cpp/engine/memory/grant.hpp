// A right of peers to some memory that its owner can revoke without closing the memory.
#pragma once

#include <array>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "engine/memory/memory.hpp"

namespace zerohop::engine {

struct GrantOptions {
  bool writable = false;
  std::optional<std::chrono::duration<double>> seconds{};  // until it expires
};

// A separate registration without an exposure: its key is all that peers have, and without the key
// they can access nothing. Ends with its last copy, and with the memory.
class Grant {
 public:
  explicit Grant(Memory memory, const GrantOptions& options = {})
      : memory_(std::move(memory)), remote_(memory_.remote()), seconds_(options.seconds) {
    if (seconds_) due_ = Deadline::after(*seconds_);
  }

  RemoteMemory remote() const {  // throws RegistrationError once revoked
    if (memory_.closed()) {
      throw RegistrationError("this grant has ended: " + why_ended() +
                              "; call grant() again for a new one");
    }
    return remote_;
  }
  const std::optional<Deadline>& due() const noexcept { return due_; }  // when it expires
  const Layout& layout() const noexcept { return memory_.layout(); }
  bool writable() const noexcept { return memory_.writable(); }
  bool revoked() const noexcept { return memory_.withdrawn(); }  // by any cause, and completely
  // On return, also if another thread revokes at the same time, no peer can access the memory by
  // this grant. The exception is GPU memory that the Endpoint itself copies: see Memory::close()
  // for how long it waits.
  void revoke() noexcept { memory_.close(); }

 private:
  std::string why_ended() const {
    if (!due_ || !due_->passed()) return "it was revoked, or its memory or Endpoint was closed";
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "its %g s have passed", seconds_->count());
    return text.data();
  }

  Memory memory_;
  RemoteMemory remote_;  // a copy: reading memory_ would delay the end of its registration
  std::optional<std::chrono::duration<double>> seconds_;
  std::optional<Deadline> due_;
};

}  // namespace zerohop::engine
