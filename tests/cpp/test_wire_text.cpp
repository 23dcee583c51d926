// Text from other processes: displayed as UTF-8 in one line, in one direction.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "base/wire_text.hpp"

namespace zerohop {
namespace {

constexpr std::size_t kMost = 4096;

std::string shown(std::string_view bytes) { return wire_text(bytes, kMost); }

TEST_CASE("text in any language stays as it is") {
  for (const std::string text :
       {"", "rank 0 of 'job' (node-1:42)", "caf\u00e9 \u00df\u00ad", "\u0440\u0430\u043d\u0433 0",
        "\u30e9\u30f3\u30af", "\u05d0\u05d1", "\U0001f680", "\ue000\ufffd\U0010ffff", "a\\b"}) {
    CHECK(shown(text) == text);
  }
}

TEST_CASE("invalid UTF-8 is shown byte by byte") {
  CHECK(shown("\xff\xfe") == "\\xff\\xfe");
  CHECK(shown("a\x80z") == "a\\x80z");
  CHECK(shown("\xc3") == "\\xc3");                             // cut off
  CHECK(shown("\xe2\x82") == "\\xe2\\x82");                    // likewise
  CHECK(shown("\xe2(\xa1") == "\\xe2(\\xa1");                  // no continuation
  CHECK(shown("\xc0\xaf") == "\\xc0\\xaf");                    // overlong
  CHECK(shown("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");           // likewise
  CHECK(shown("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(shown("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond the last
  CHECK(shown("\xf5\x80\x80\x80") == "\\xf5\\x80\\x80\\x80");
}

TEST_CASE("what drives terminals, breaks lines or turns the direction of writing is shown") {
  CHECK(shown("a\nb\r\tc") == "a\\x0ab\\x0d\\x09c");
  CHECK(shown(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(shown("\x1b[2J\x7f") == "\\x1b[2J\\x7f");
  CHECK(shown("\u009b2J\u0085") == "\\xc2\\x9b2J\\xc2\\x85");
  CHECK(shown("\u2028\u2029") == "\\xe2\\x80\\xa8\\xe2\\x80\\xa9");
  CHECK(shown("txt.\u202eexe") == "txt.\\xe2\\x80\\xaeexe");
  for (const char* turn : {"\u061c", "\u200e", "\u200f", "\u202a", "\u2066", "\u2069"}) {
    CHECK(shown(turn).starts_with("\\x"));
  }
}

TEST_CASE("it is cut between two characters or escapes") {
  CHECK(wire_text("abc", 2) == "ab");
  CHECK(wire_text("a\u00e9", 2) == "a");
  CHECK(wire_text("a\xff\xff", 8) == "a\\xff");
  CHECK(wire_text(std::string(5000, '\xff'), kMost).size() == kMost);
}

TEST_CASE("whatever comes, it is the same the second time") {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(random() % 12, '\0');
    for (char& each : bytes) {
      each = static_cast<char>(random() % 4 == 0 ? 0x80 + random() % 0x80 : random());
    }
    const std::string once = shown(bytes);
    CHECK(shown(once) == once);
  }
}

}  // namespace
}  // namespace zerohop
