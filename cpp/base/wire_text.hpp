// Text from another process, made fit to be shown: in errors, logs, counters and to Python.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zerohop {

// `bytes` as well-formed UTF-8, cut to `most` bytes. Each byte of what is no UTF-8, of control
// characters (line breaks, terminal escapes) and of those that break lines or turn the direction
// of writing becomes an escape as of Python's backslashreplace, "\xff": nobody writes lines of
// their own into a log, drives a terminal, or looks like another. All else stays, so that it is
// the same the second time.
std::string wire_text(std::string_view bytes, std::size_t most);

}  // namespace zerohop
