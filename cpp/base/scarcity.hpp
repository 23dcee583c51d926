// Which system limit was hit: errno alone names neither the limit nor how to raise it.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/error.hpp"

namespace zerohop {

// The limit behind an errno (EMFILE, ENFILE, ENOMEM, EAGAIN, EFBIG, ENOSPC), its current value for
// this process, and the command that raises it: "this process may have 1024 open files
// (RLIMIT_NOFILE): ...". Empty for other numbers. Reads /proc, so call it only after a failure.
std::string remedy_of(int error_number);

// RLIMIT_MEMLOCK of this process: "65536 bytes", or "none".
std::string locked_memory_limit();

// errno_message() followed by the remedy, if there is one.
std::string scarcity_message(const std::string& what, int error_number);

// Throws Failure with that message and errno.
template <typename Failure = Error>
[[noreturn]] void throw_scarce(const std::string& what, int error_number) {
  throw Failure(scarcity_message(what, error_number), error_number);
}

// Starts a thread of that name, at most 15 bytes. Throws Error when the system is out of threads.
std::thread start_thread(const char* name, std::function<void()> work);

}  // namespace zerohop
