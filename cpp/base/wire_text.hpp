// Text from another process, made safe to display in errors, logs, counters and Python.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zerohop {

// `bytes` as well-formed UTF-8, truncated to `most` bytes. Invalid UTF-8, control characters (line
// breaks, terminal escapes), other line separators and bidirectional controls become escapes like
// those of Python's backslashreplace, "\xff". So no text can forge log lines, drive a terminal, or
// pose as another. Idempotent.
std::string wire_text(std::string_view bytes, std::size_t most);

}  // namespace zerohop
