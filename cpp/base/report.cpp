#include "base/report.hpp"

#include <atomic>
#include <cstdio>

namespace zerohop {
namespace {

void to_stderr(std::string_view message) noexcept {
  // One call: stdio locks the stream, so lines of several threads do not mix.
  std::fprintf(stderr, "zerohop: %.*s\n", static_cast<int>(message.size()), message.data());
}

std::atomic<ReportSink> current{&to_stderr};

}  // namespace

void report(std::string_view message) noexcept { current.load()(message); }

ReportSink set_report_sink(ReportSink sink) noexcept {
  return current.exchange(sink != nullptr ? sink : &to_stderr);
}

}  // namespace zerohop
