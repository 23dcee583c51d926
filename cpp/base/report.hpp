// Where failures go that cannot be thrown: from destructors and background threads.
#pragma once

#include <initializer_list>
#include <string_view>

namespace zerohop {

// Called from any thread, also during process exit. Must neither block for long nor take the GIL.
using ReportSink = void (*)(std::string_view message) noexcept;

// Passes one sentence to the sink; the default sink writes a line to stderr.
void report(std::string_view message) noexcept;
// The same for a sentence in parts, joined without heap memory: for callers that may be out of
// memory or must not throw. Very long ones are truncated.
void report(std::initializer_list<std::string_view> parts) noexcept;

// Replaces the sink (null: back to stderr) and returns the previous one.
ReportSink set_report_sink(ReportSink sink) noexcept;

}  // namespace zerohop
