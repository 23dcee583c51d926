// Failures that cannot be thrown are reported, even without memory to compose the text.
#include <doctest/doctest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "base/report.hpp"

namespace {

thread_local bool out_of_memory = false;
std::string told;

}  // namespace

void* operator new(std::size_t nbytes) {
  void* const memory = out_of_memory ? nullptr : std::malloc(nbytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

TEST_CASE("parts are put together without memory from the heap") {
  told.reserve(4096);
  const auto former =
      zerohop::set_report_sink([](std::string_view text) noexcept { told.assign(text); });
  const std::string cause(100, 'x');
  out_of_memory = true;
  zerohop::report({"it cannot go on: ", cause, "."});
  out_of_memory = false;
  CHECK(told == "it cannot go on: " + cause + ".");
  zerohop::report({std::string(5000, 'y')});
  CHECK(told == std::string(2048, 'y'));
  zerohop::set_report_sink(former);
}
