// How many connections a listener keeps of those who have not yet said who they are.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

namespace zerohop {

// `wished`, but never more than a quarter of the descriptors that this process may have: a crowd
// before the door must not keep the program from opening files, nor honest peers from coming in.
std::size_t most_strangers(std::size_t wished) noexcept;

// From 0 to count - 1, by chance; nobody can guess which.
std::size_t any_of(std::size_t count) noexcept;

// Which of too many strangers goes: one that chance picks, so that nobody can aim at another's
// place, of those who have had time to say who they are, if there are any: a crowd that comes in
// one rush does not push out who came with it. A greeting needs no secret, so it protects nobody.
// `came` says since when an element is a stranger; nullopt: it is none. Returns `end` if all are.
template <typename Iterator, typename Came>
Iterator pick_victim(Iterator begin, Iterator end, const Came& came) noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kSpeaksWithin{100};  // usual greetings are over by then
  const Clock::time_point now = Clock::now();
  const auto is_slow = [&](Iterator at) { return now - *came(*at) > kSpeaksWithin; };
  std::size_t all = 0, slow = 0;
  for (Iterator at = begin; at != end; ++at) {
    if (!came(*at)) continue;
    ++all;
    if (is_slow(at)) ++slow;
  }
  if (all == 0) return end;
  std::size_t before = any_of(slow > 0 ? slow : all);
  for (Iterator at = begin;; ++at) {
    if (came(*at) && (slow == 0 || is_slow(at)) && before-- == 0) return at;
  }
}

}  // namespace zerohop
