// The helpers of the C++ tests check with doctest; here a check that fails ends the process.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

namespace {

doctest::Context& outside_of_tests() {
  static doctest::Context context;
  context.setAsDefaultForAssertsOutOfTestCases();
  context.setAssertHandler([](const doctest::AssertData& data) {
    if (!data.m_failed) return;
    std::fprintf(stderr, "%s:%d: fuzzing found that this does not hold: %s (%s)\n", data.m_file,
                 data.m_line, data.m_expr, data.m_decomp.c_str());
    std::abort();
  });
  return context;
}

[[maybe_unused]] const doctest::Context& installed = outside_of_tests();

}  // namespace
