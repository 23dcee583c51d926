// Where failures go that cannot be thrown: those of destructors and of background threads.
#pragma once

#include <initializer_list>
#include <string_view>

namespace zerohop {

// Called from any thread, also during process exit; must neither block for long nor take the GIL.
using ReportSink = void (*)(std::string_view message) noexcept;

// Hands one sentence to the sink: by default a line on stderr.
void report(std::string_view message) noexcept;
// ... in parts, which are put together without memory from the heap: for who may be out of it, or
// must not throw. One that is very long is cut off.
void report(std::initializer_list<std::string_view> parts) noexcept;

// Replaces the sink (null: back to stderr) and returns the former one.
ReportSink set_report_sink(ReportSink sink) noexcept;

}  // namespace zerohop
