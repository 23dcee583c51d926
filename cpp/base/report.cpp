#include "base/report.hpp"

#include <array>
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

void report(std::initializer_list<std::string_view> parts) noexcept {
  std::array<char, 2048> text;
  std::size_t nbytes = 0;
  for (const std::string_view part : parts)
    nbytes += part.copy(text.data() + nbytes, text.size() - nbytes);
  report(std::string_view(text.data(), nbytes));
}

ReportSink set_report_sink(ReportSink sink) noexcept {
  return current.exchange(sink != nullptr ? sink : &to_stderr);
}

}  // namespace zerohop
