// What the code under test says: errors that it throws, and failures that it reports.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/report.hpp"

namespace zerohop::testing {

inline bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

// The error of that type that `call` throws.
template <typename Failure, typename Call>
Failure thrown_by(Call call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure;
  }
  FAIL("nothing was thrown");
  return Failure("");
}

template <typename Failure, typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "nothing was thrown";
}

// Collects reports, for its lifetime; one at a time.
class Reports {
 public:
  Reports() : former_(set_report_sink(&take)) { clear(); }
  ~Reports() { set_report_sink(former_); }
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;

  static std::vector<std::string> all() {
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  // Those that contain `part`.
  static int count(const std::string& part = "") {
    const auto texts = all();
    return static_cast<int>(std::ranges::count_if(
        texts, [&](const auto& text) { return text.find(part) != std::string::npos; }));
  }
  static void clear() {
    const std::lock_guard lock(mutex_);
    texts_.clear();
  }

 private:
  static void take(std::string_view text) noexcept {
    const std::lock_guard lock(mutex_);
    texts_.emplace_back(text);
  }
  static inline std::mutex mutex_;
  static inline std::vector<std::string> texts_;
  ReportSink former_;
};

}  // namespace zerohop::testing
