#include "softhca/faults.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>

namespace zerohop::softhca {
namespace {

using std::chrono::nanoseconds;

// By number, without IBV_WC_.
constexpr std::array<std::string_view, 24> kStatuses = {"SUCCESS",
                                                        "LOC_LEN_ERR",
                                                        "LOC_QP_OP_ERR",
                                                        "LOC_EEC_OP_ERR",
                                                        "LOC_PROT_ERR",
                                                        "WR_FLUSH_ERR",
                                                        "MW_BIND_ERR",
                                                        "BAD_RESP_ERR",
                                                        "LOC_ACCESS_ERR",
                                                        "REM_INV_REQ_ERR",
                                                        "REM_ACCESS_ERR",
                                                        "REM_OP_ERR",
                                                        "RETRY_EXC_ERR",
                                                        "RNR_RETRY_EXC_ERR",
                                                        "LOC_RDD_VIOL_ERR",
                                                        "REM_INV_RD_REQ_ERR",
                                                        "REM_ABORT_ERR",
                                                        "INV_EECN_ERR",
                                                        "INV_EEC_STATE_ERR",
                                                        "FATAL_ERR",
                                                        "RESP_TIMEOUT_ERR",
                                                        "GENERAL_ERR",
                                                        "TM_ERR",
                                                        "TM_RNDV_INCOMPLETE"};

[[noreturn]] void refuse(std::string_view word, std::string_view value, const std::string& wanted) {
  throw std::invalid_argument("faults: " + std::string(word) + "=" + std::string(value) +
                              " is not " + wanted);
}

template <typename Number>
bool read_number(std::string_view text, Number& number, std::string_view& rest) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return error == std::errc{};
}

void set_rate(double& rate, std::string_view word, std::string_view value) {
  std::string_view rest;
  if (!read_number(value, rate, rest) || !rest.empty() || !(rate >= 0 && rate <= 1)) {
    refuse(word, value, "a probability from 0 to 1");
  }
}

void set_count(std::uint64_t& count, std::string_view word, std::string_view value) {
  std::string_view rest;
  if (!read_number(value, count, rest) || !rest.empty()) {
    refuse(word, value, "an integer from 0 to 2**64-1");
  }
}

void set_time(nanoseconds& time, std::string_view word, std::string_view value) {
  constexpr double kLongest = 3600;  // seconds
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  double number = -1;
  std::string_view rest;
  const bool read = read_number(value, number, rest);
  const auto* unit = std::ranges::find(kUnits, rest, &std::pair<std::string_view, double>::first);
  const double seconds = unit != std::end(kUnits) ? number * unit->second : -1;
  if (!read || !(seconds >= 0 && seconds <= kLongest)) {
    refuse(word, value, "a time from 0 to 1 hour, as 0.002, 2ms, 50us or 1s");
  }
  time = nanoseconds(std::llround(seconds * 1e9));
}

void set_status(ibv_wc_status& status, std::string_view word, std::string_view value) {
  const auto named = std::ranges::find(kStatuses, value);
  auto number = static_cast<std::size_t>(named - kStatuses.begin());
  std::string_view rest;
  if (named == kStatuses.end() && (!read_number(value, number, rest) || !rest.empty())) {
    number = kStatuses.size();
  }
  if (number == IBV_WC_SUCCESS || number >= kStatuses.size()) {
    refuse(word, value,
           "the status of a failed completion, as RETRY_EXC_ERR or 12 (man ibv_poll_cq)");
  }
  status = static_cast<ibv_wc_status>(number);
}

struct Word {
  std::string_view name;
  void (*set)(Faults& faults, std::string_view word, std::string_view value);
  std::string (*text)(const Faults& faults);  // its value as text
};

std::string number_text(double number) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return {digits.data(), end};
}

template <double Faults::* rate>
constexpr Word rate_word(std::string_view name) {
  return {name, [](Faults& f, std::string_view w, std::string_view v) { set_rate(f.*rate, w, v); },
          [](const Faults& f) { return number_text(f.*rate); }};
}

template <std::uint64_t Faults::* count>
constexpr Word count_word(std::string_view name) {
  return {name,
          [](Faults& f, std::string_view w, std::string_view v) { set_count(f.*count, w, v); },
          [](const Faults& f) { return std::to_string(f.*count); }};
}

template <nanoseconds Faults::* time>
constexpr Word time_word(std::string_view name) {
  return {name, [](Faults& f, std::string_view w, std::string_view v) { set_time(f.*time, w, v); },
          [](const Faults& f) { return std::to_string((f.*time).count()) + "ns"; }};
}

constexpr std::array kWords{
    count_word<&Faults::seed>("seed"),
    rate_word<&Faults::drop>("drop"),
    rate_word<&Faults::duplicate>("duplicate"),
    rate_word<&Faults::corrupt>("corrupt"),
    rate_word<&Faults::cut>("cut"),
    rate_word<&Faults::partial>("partial"),
    rate_word<&Faults::alter>("alter"),
    rate_word<&Faults::rnr>("rnr"),
    time_word<&Faults::delay>("delay"),
    rate_word<&Faults::delay_rate>("delay_rate"),
    time_word<&Faults::slow>("slow"),
    count_word<&Faults::fail>("fail"),
    Word{"fail_status",
         [](Faults& f, std::string_view w, std::string_view v) { set_status(f.fail_status, w, v); },
         [](const Faults& f) { return std::string(status_word(f.fail_status)); }},
    count_word<&Faults::remove>("remove"),
    count_word<&Faults::max_qp>("max_qp"),
    count_word<&Faults::max_cq>("max_cq"),
    count_word<&Faults::max_mr>("max_mr"),
};

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

void set_word(Faults& faults, std::string_view item) {
  const auto equals = item.find('=');
  const std::string_view name = trimmed(item.substr(0, equals));
  const auto* word = std::ranges::find(kWords, name, &Word::name);
  if (word == kWords.end()) {
    std::string known;
    for (const Word& each : kWords) known.append(known.empty() ? "" : ", ").append(each.name);
    throw std::invalid_argument("faults: there is no '" + std::string(name) + "': known are " +
                                known);
  }
  if (equals == std::string_view::npos) {
    throw std::invalid_argument("faults: '" + std::string(name) + "' lacks a value: write " +
                                std::string(name) + "=...");
  }
  word->set(faults, name, trimmed(item.substr(equals + 1)));
}

}  // namespace

Faults Faults::parse(std::string_view text) {
  Faults faults;
  if (trimmed(text).empty()) return faults;
  for (;;) {
    const auto comma = text.find(',');
    set_word(faults, text.substr(0, comma));
    if (comma == std::string_view::npos) return faults;
    text.remove_prefix(comma + 1);
  }
}

std::string Faults::text() const {
  std::string all;
  for (const Word& word : kWords) {
    const std::string value = word.text(*this);
    if (value == word.text(Faults{})) continue;
    all.append(all.empty() ? "" : ",").append(word.name).append("=").append(value);
  }
  return all;
}

bool Faults::any() const noexcept {
  return on_queue_pairs() || max_qp > 0 || max_cq > 0 || max_mr > 0;
}

bool Faults::on_queue_pairs() const noexcept {
  const bool waits = (delay.count() > 0 && delay_rate > 0) || slow.count() > 0;
  return drop > 0 || duplicate > 0 || corrupt > 0 || cut > 0 || partial > 0 || alter > 0 ||
         rnr > 0 || waits || fail > 0 || remove > 0;
}

std::string_view status_word(ibv_wc_status status) noexcept {
  return kStatuses[static_cast<std::size_t>(status)];
}

const char* fault_name(Fault fault) noexcept {
  constexpr std::array<const char*, kFaults> kNames = {
      "drop",  "duplicate", "corrupt", "cut",    "partial",       "delay",
      "slow",  "rnr",       "fail",    "remove", "corrupt_found", "duplicate_found",
      "alter", "max_qp",    "max_cq",  "max_mr"};
  return kNames[static_cast<std::size_t>(fault)];
}

std::string FaultCounts::text() const {
  constexpr std::array kDone{Fault::drop,    Fault::duplicate, Fault::corrupt, Fault::cut,
                             Fault::partial, Fault::delay,     Fault::slow,    Fault::rnr,
                             Fault::fail,    Fault::remove,    Fault::alter};
  std::string text;
  for (const Fault fault : kDone) {
    if (of(fault) == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(fault_name(fault)) + " " +
            std::to_string(of(fault));
  }
  return text;
}

}  // namespace zerohop::softhca
