// All ranks of a collective in one thread, without a network: every rank's moves go to the others
// at once.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/collective/schedule.hpp"

namespace zerohop::engine::collective {

using Bytes = std::vector<std::byte>;
using Hosts = std::vector<std::uint32_t>;  // by rank

inline constexpr std::byte kPoison{0xEE};
inline constexpr Rank kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13};

// A rank of one call: its arrays, each in memory of its own, and what it does.
struct Member {
  Terms terms;
  std::deque<Bytes> memory;
  Schedules schedules;
  std::shared_ptr<Schedule> schedule;
  Step step;
  std::vector<Move> receives;
  std::set<Rank> met;
  std::map<Rank, std::size_t> sent_to;  // messages
  std::size_t steps = 0, sent = 0;
  bool done = false;

  Block array(Bytes content, bool on_host) {
    memory.push_back(std::move(content));
    terms.arrays.push_back({.bytes = memory.back().data(), .memory = {}, .on_host = on_host});
    return {terms.arrays.size() - 1, 0, memory.back().size()};
  }
  const Bytes& content(const Block& block) const { return memory[block.array]; }

  void begin() {
    schedule = schedules.begin(terms);
    const bool on_host = schedule->on_host();
    memory.emplace_back(schedule->room(), kPoison);
    schedule->set_room({.bytes = memory.back().data(), .memory = {}, .on_host = on_host});
  }
};

// Bytes that tell which rank sends them to which.
inline Bytes content_of(Rank from, Rank to, std::size_t nbytes) {
  Bytes made(nbytes);
  std::size_t at = 0;
  std::ranges::generate(made, [&] {
    ++at;
    return static_cast<std::byte>(31 * from + 17 * to + 7 * at + (at >> 8));
  });
  return made;
}

class AllRanks {
 public:
  explicit AllRanks(Rank size) : ranks(size) {}

  // Whether all came to an end, took everything that was sent, and met their partners only.
  bool run() {
    for (Member& member : ranks) member.begin();
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank rank = 0; rank < ranks.size(); ++rank) moved |= advance(rank);
    }
    const auto is_empty = [](const auto& each) { return each.second.empty(); };
    return std::ranges::all_of(sent_, is_empty) &&
           std::ranges::all_of(ranks, [](const Member& member) {
             const std::vector<Rank> partners = member.schedule->partners();
             const std::set<Rank> known(partners.begin(), partners.end());
             return member.done && known.size() == partners.size() && member.met == known;
           });
  }

  std::vector<Member> ranks;

 private:
  struct Message {
    std::uint64_t whole;
    std::uint32_t part;
    Bytes bytes;
  };

  // In the order in which they were sent, except that what another label has may overtake.
  std::deque<Message>::iterator find(Rank rank, const Move& move) {
    auto& line = sent_[{move.rank, rank}];
    return std::ranges::find_if(line, [&](const Message& message) {
      return message.part == move.label.part && message.whole == move.label.nbytes;
    });
  }

  // False: it waits for another rank.
  bool advance(Rank rank) {
    Member& member = ranks[rank];
    if (member.done) return false;
    for (Move& move : member.receives) {
      auto& line = sent_[{move.rank, rank}];
      if (find(rank, move) == line.end()) return false;
    }
    for (Move& move : member.receives) {
      const auto found = find(rank, move);
      REQUIRE(found->bytes.size() == move.nbytes);
      if (move.nbytes > 0) {
        std::memcpy(member.schedule->at({move.array, move.begin, 0}), found->bytes.data(),
                    move.nbytes);
      }
      move.arrived = move.bytes;
      sent_[{move.rank, rank}].erase(found);
    }
    const std::vector<Move> arrived = std::move(member.receives);
    member.done = !member.schedule->next(member.step, arrived);
    if (member.done) {
      REQUIRE_FALSE(member.schedule->next(member.step, {}));
      return true;
    }
    ++member.steps;
    for (const auto& [target, source] : member.step.meanwhile) {
      REQUIRE(member.schedule->array(target.array).on_host);
      REQUIRE(member.schedule->array(source.array).on_host);
      member.step.copies.push_back({target, source});
    }
    for (const auto& [target, source] : member.step.copies) {
      REQUIRE(target.nbytes == source.nbytes);
      if (target.nbytes > 0) {
        std::memmove(member.schedule->at(target), member.schedule->at(source), target.nbytes);
      }
    }
    for (const Move& move : member.step.sends) {
      const bool far = move.nbytes > 0 && move.bytes == nullptr;
      REQUIRE((move.nbytes == 0 || far == !member.schedule->array(move.array).on_host));
      member.met.insert(move.rank);
      ++member.sent;
      ++member.sent_to[move.rank];
      const std::byte* const begin = member.schedule->at({move.array, move.begin, 0});
      sent_[{rank, move.rank}].push_back(
          {move.label.nbytes, move.label.part, Bytes(begin, begin + move.nbytes)});
    }
    for (const Move& move : member.step.receives) member.met.insert(move.rank);
    member.receives = member.step.receives;
    return true;
  }

  std::map<std::pair<Rank, Rank>, std::deque<Message>> sent_;  // by source and target
};

// Bytes of what one rank sends to another.
using Size = std::size_t (*)(Rank from, Rank to);
inline const Size kBlocks[] = {
    [](Rank, Rank) { return std::size_t{0}; },
    [](Rank, Rank) { return std::size_t{24}; },
    [](Rank from, Rank to) { return std::size_t{8} * ((3 * from + 5 * to) % 7); },
    [](Rank from, Rank) { return from == 1 ? 2 * kEager : std::size_t{0}; },
    [](Rank, Rank) { return kEager + 8; },
};

inline void check(const Member& member, const Block& block, const Bytes& expected) {
  REQUIRE(member.content(block) == expected);
}

template <typename Each>
void for_all(Each&& each) {
  for (const Rank size : kSizes) {
    for (const Size bytes : kBlocks) {
      for (const Rank far : {size, Rank{0}}) {  // whose arrays no CPU reaches
        CAPTURE(size);
        CAPTURE(bytes(1, 0));
        CAPTURE(far);
        each(size, bytes, far);
      }
    }
  }
}

}  // namespace zerohop::engine::collective
