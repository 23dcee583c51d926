// What the system has no more of: errno alone names neither the limit nor the way to raise it.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/error.hpp"

namespace zerohop {

// The limit behind an errno (EMFILE, ENFILE, ENOMEM, EAGAIN, EFBIG, ENOSPC), as it is for this
// process now, and the command that raises it: "this process may have 1024 files open
// (RLIMIT_NOFILE): ...". Empty for others. Reads /proc, so it is for failures only.
std::string remedy_of(int error_number);

// RLIMIT_MEMLOCK of this process: "65536 bytes", or "none".
std::string locked_memory_limit();

// errno_message(), and the remedy behind it if there is one.
std::string scarcity_message(const std::string& what, int error_number);

// Throws Failure with that message and number.
template <typename Failure = Error>
[[noreturn]] void throw_scarce(const std::string& what, int error_number) {
  throw Failure(scarcity_message(what, error_number), error_number);
}

// A thread by that name, 15 bytes at most. Throws Error where the system starts no more of them.
std::thread start_thread(const char* name, std::function<void()> work);

}  // namespace zerohop
