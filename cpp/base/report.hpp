// Where failures go that cannot be thrown: those of destructors and of background threads.
#pragma once

#include <string_view>

namespace zerohop {

// Called from any thread, also during process exit; must neither block for long nor take the GIL.
using ReportSink = void (*)(std::string_view message) noexcept;

// Hands one sentence to the sink: by default a line on stderr.
void report(std::string_view message) noexcept;

// Replaces the sink (null: back to stderr) and returns the former one.
ReportSink set_report_sink(ReportSink sink) noexcept;

}  // namespace zerohop
