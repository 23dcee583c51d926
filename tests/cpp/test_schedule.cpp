// What the ranks of a collective send, receive and copy, without a network: all of them in one
// thread, every rank's moves go to the others at once. test_stages.cpp has reductions in stages.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/collective/direct_reduction.hpp"
#include "engine/collective/movement.hpp"
#include "engine/collective/staged_reduction.hpp"

namespace zerohop::engine::collective {
namespace {

using Bytes = std::vector<std::byte>;
using Hosts = std::vector<std::uint32_t>;  // by rank

constexpr DType kInt{kDTypeInt, 64, 1};
constexpr std::byte kPoison{0xEE};
constexpr Rank kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13};

// As of a GPU: no CPU reaches the blocks.
class FarCombiner : public HostCombiner {
 public:
  bool on_host() const noexcept override { return false; }
};

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
Bytes content_of(Rank from, Rank to, std::size_t nbytes) {
  Bytes made(nbytes);
  std::mt19937 random(64 * from + to + 1);
  std::ranges::generate(made, [&] { return static_cast<std::byte>(random()); });
  return made;
}

class Call {
 public:
  explicit Call(Rank size) : ranks(size) {}

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
const Size kBlocks[] = {
    [](Rank, Rank) { return std::size_t{0}; },
    [](Rank, Rank) { return std::size_t{24}; },
    [](Rank from, Rank to) { return std::size_t{8} * ((3 * from + 5 * to) % 7); },
    [](Rank from, Rank) { return from == 1 ? 2 * kEager : std::size_t{0}; },
    [](Rank, Rank) { return kEager + 8; },
};

void check(const Member& member, const Block& block, const Bytes& expected) {
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

TEST_CASE("a block is broadcast from any root, whole and in pieces") {
  for_all([](Rank size, Size bytes, Rank far) {
    for (Rank root = 0; root < size; ++root) {
      for (const std::uint64_t piece : {std::uint64_t{0}, std::uint64_t{10'000}}) {
        Call call(size);
        const Bytes sent = content_of(root, 0, bytes(1, 0));
        for (Rank rank = 0; rank < size; ++rank) {
          Member& member = call.ranks[rank];
          member.terms = {.kind = Kind::broadcast, .rank = rank, .size = size};
          member.terms.root = static_cast<std::int32_t>(root);
          member.terms.piece = piece;
          member.terms.ins = {
              member.array(rank == root ? sent : Bytes(sent.size(), kPoison), rank != far)};
        }
        REQUIRE(call.run());
        for (const Member& member : call.ranks) REQUIRE(member.memory.front() == sent);
      }
    }
  });
}

TEST_CASE("a root scatters and gathers") {
  for_all([](Rank size, Size bytes, Rank far) {
    for (Rank root = 0; root < size; ++root) {
      for (const Kind kind : {Kind::scatter, Kind::gather}) {
        Call call(size);
        for (Rank rank = 0; rank < size; ++rank) {
          Member& member = call.ranks[rank];
          Terms& terms = member.terms;
          terms = {.kind = kind, .rank = rank, .size = size};
          terms.root = static_cast<std::int32_t>(root);
          auto& one = kind == Kind::scatter ? terms.outs : terms.ins;
          auto& many = kind == Kind::scatter ? terms.ins : terms.outs;
          const bool sends = kind == Kind::gather;
          one = {member.array(
              sends ? content_of(rank, 0, bytes(rank, 0)) : Bytes(bytes(root, rank), kPoison),
              rank != far)};
          for (Rank other = 0; rank == root && other < size; ++other) {
            many.push_back(member.array(sends ? Bytes(bytes(other, 0), kPoison)
                                              : content_of(root, other, bytes(root, other)),
                                        rank != far));
          }
        }
        REQUIRE(call.run());
        for (Rank rank = 0; rank < size; ++rank) {
          if (kind == Kind::scatter) {
            check(call.ranks[rank], {0}, content_of(root, rank, bytes(root, rank)));
          } else {
            check(call.ranks[root], {1 + rank}, content_of(rank, 0, bytes(rank, 0)));
          }
        }
      }
    }
  });
}

TEST_CASE("all ranks gather all blocks, and exchange blocks with each other") {
  for_all([](Rank size, Size bytes, Rank far) {
    for (const Kind kind : {Kind::all_gather, Kind::all_to_all}) {
      const auto to = [&](Rank rank) { return kind == Kind::all_gather ? Rank{0} : rank; };
      Call call(size);
      for (Rank rank = 0; rank < size; ++rank) {
        Member& member = call.ranks[rank];
        member.terms = {.kind = kind, .rank = rank, .size = size};
        for (Rank other = 0; other < size; ++other) {
          member.terms.outs.push_back(
              member.array(Bytes(bytes(other, to(rank)), kPoison), rank != far));
        }
        for (Rank other = 0; other < (kind == Kind::all_gather ? 1 : size); ++other) {
          member.terms.ins.push_back(
              member.array(content_of(rank, to(other), bytes(rank, to(other))), true));
        }
      }
      REQUIRE(call.run());
      for (Rank rank = 0; rank < size; ++rank) {
        for (Rank other = 0; other < size; ++other) {
          check(call.ranks[rank], {other}, content_of(other, to(rank), bytes(other, to(rank))));
        }
      }
    }
  });
}

TEST_CASE("ranks send to some and receive from some, or copy to themselves") {
  for_all([](Rank size, Size bytes, Rank) {
    for (Rank shift = 0; shift < size; ++shift) {
      Call call(size);
      for (Rank rank = 0; rank < size; ++rank) {
        Member& member = call.ranks[rank];
        member.terms = {.kind = Kind::send_recv, .rank = rank, .size = size};
        const Rank from = (rank + size - shift) % size;
        if (shift == 0 || rank % 2 == 0) {
          member.terms.to = (rank + shift) % size;
          member.terms.ins = {member.array(content_of(rank, 0, bytes(rank, 0)), true)};
        }
        if (shift == 0 || from % 2 == 0) {
          member.terms.from = from;
          member.terms.outs = {member.array(Bytes(bytes(from, 0), kPoison), true)};
        }
      }
      REQUIRE(call.run());
      for (Rank rank = 0; rank < size; ++rank) {
        const Member& member = call.ranks[rank];
        const Rank from = (rank + size - shift) % size;
        if (shift == 0 || from % 2 == 0) {
          REQUIRE(member.memory[member.memory.size() - 2] == content_of(from, 0, bytes(from, 0)));
        }
      }
    }
  });
}

// --- reductions ---

std::int64_t value(Rank from, Rank to, std::size_t at) {
  return (std::int64_t{1} << (3 * from)) * (1 + static_cast<std::int64_t>((to + at) % 5));
}

Bytes numbers(std::size_t count, auto&& each) {
  Bytes made(count * sizeof(std::int64_t));
  for (std::size_t at = 0; at < count; ++at) {
    const std::int64_t number = each(at);
    std::memcpy(&made[at * sizeof number], &number, sizeof number);
  }
  return made;
}

// who: reduces on a GPU (on), or has its arrays there, which CPUs reduce (through).
enum class Who { nobody, on, through };

void give_reduction(Member& member, Kind kind, Rank rank, Rank size, Who who) {
  member.terms = {.kind = kind, .rank = rank, .size = size};
  member.terms.reduction = {.op = Op::sum, .dtype = kInt};
  if (who == Who::on) member.terms.by = std::make_shared<FarCombiner>();
}

TEST_CASE("every rank reduces its part of all arrays, in pieces") {
  for_all([](Rank size, Size bytes, Rank far) {
    const auto count = [&](Rank to) { return bytes(to, to) / 8; };
    for (const Who who : {Who::on, Who::through}) {
      Call call(size);
      for (Rank rank = 0; rank < size; ++rank) {
        Member& member = call.ranks[rank];
        const bool is_far = rank == far;
        give_reduction(member, Kind::reduce_scatter, rank, size, is_far ? who : Who::nobody);
        member.terms.piece = 1;  // EAGER
        for (Rank to = 0; to < size; ++to) {
          const auto of = [&](std::size_t at) { return value(rank, to, at); };
          member.terms.ins.push_back(member.array(numbers(count(to), of), !is_far));
        }
        member.terms.outs = {member.array(Bytes(8 * count(rank), kPoison), !is_far)};
      }
      REQUIRE(call.run());
      for (Rank rank = 0; rank < size; ++rank) {
        check(call.ranks[rank], {size}, numbers(count(rank), [&](std::size_t at) {
                std::int64_t sum = 0;
                for (Rank from = 0; from < size; ++from) sum += value(from, rank, at);
                return sum;
              }));
      }
    }
  });
}

TEST_CASE("whole arrays are reduced at once or in stages, on one rank, on all, or up to each") {
  for_all([](Rank size, Size bytes, Rank far) {
    const std::size_t count = bytes(1, 1) / 8;
    const Algorithm slices{.slice = far == size ? kEager : 2 * kEager};
    const Topology topology(
        Hosts(size), {{.nbytes = kEager, .algorithm = {.whole = true}}, {.algorithm = slices}});
    for (const Kind kind : {Kind::all_reduce, Kind::reduce, Kind::scan}) {
      for (const Who who : {Who::on, Who::through}) {
        Call call(size);
        const Rank root = size - 1;
        for (Rank rank = 0; rank < size; ++rank) {
          Member& member = call.ranks[rank];
          const bool is_far = rank == far;
          give_reduction(member, kind, rank, size, is_far ? who : Who::nobody);
          member.terms.topology = &topology;
          if (kind == Kind::reduce) member.terms.root = static_cast<std::int32_t>(root);
          const auto of = [&](std::size_t at) { return value(rank, 0, at); };
          member.terms.ins = {member.array(numbers(count, of), !is_far)};
          if (kind == Kind::reduce && rank != root) continue;
          member.terms.outs = {member.array(Bytes(8 * count, kPoison), !is_far)};
        }
        REQUIRE(call.run());
        for (Rank rank = 0; rank < size; ++rank) {
          if (kind == Kind::reduce && rank != root) continue;
          const Rank end = kind == Kind::scan ? rank + 1 : size;
          check(call.ranks[rank], {1}, numbers(count, [&](std::size_t at) {
                  std::int64_t sum = 0;
                  for (Rank from = 0; from < end; ++from) sum += value(from, 0, at);
                  return sum;
                }));
        }
      }
    }
  });
}

// --- how many steps and messages ---

Call broadcast(Rank size, std::size_t nbytes, std::uint64_t piece) {
  Call call(size);
  for (Rank rank = 0; rank < size; ++rank) {
    call.ranks[rank].terms = {.kind = Kind::broadcast, .rank = rank, .size = size, .root = 0};
    call.ranks[rank].terms.piece = piece;
    call.ranks[rank].terms.ins = {call.ranks[rank].array(Bytes(nbytes), true)};
  }
  REQUIRE(call.run());
  return call;
}

TEST_CASE(
    "a small block goes at once to a few ranks, along a tree to many, a large one along a chain") {
  CHECK(broadcast(8, kEager, 0).ranks[0].sent == 7);
  CHECK(broadcast(9, kEager, 0).ranks[0].sent == 4);
  CHECK(broadcast(4, kEager + 1, 0).ranks[0].sent == 2);
  const Call chain = broadcast(4, 10 * kEager, kEager);
  for (Rank rank = 0; rank < 4; ++rank) CHECK(chain.ranks[rank].sent == (rank == 3 ? 0 : 10));
}

TEST_CASE("a broadcast gets to each host once") {
  const std::vector<Hosts> layouts{{0, 0, 1, 1},
                                   {0, 1, 0, 1},
                                   {0, 0, 0, 1, 1, 2},
                                   {2, 1, 0, 1, 2},
                                   {0, 0, 0, 1, 1, 1, 2, 2, 2},
                                   {0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 7}};
  for (const Hosts& hosts : layouts) {
    const Topology topology(hosts, {{.algorithm = {}}});
    const auto size = static_cast<Rank>(hosts.size());
    for (const std::size_t nbytes : {std::size_t{8}, 5 * kEager, 40 * kEager}) {
      for (Rank root = 0; root < size; ++root) {
        CAPTURE(size);
        CAPTURE(nbytes);
        CAPTURE(root);
        Call call(size);
        const Bytes sent = content_of(root, 0, nbytes);
        for (Rank rank = 0; rank < size; ++rank) {
          Member& member = call.ranks[rank];
          member.terms = {.kind = Kind::broadcast, .rank = rank, .size = size};
          member.terms.root = static_cast<std::int32_t>(root);
          member.terms.piece = 4 * kEager;
          member.terms.topology = &topology;
          member.terms.ins = {
              member.array(rank == root ? sent : Bytes(nbytes, kPoison), /*on_host=*/true)};
        }
        REQUIRE(call.run());
        std::size_t crossings = 0;
        for (Rank rank = 0; rank < size; ++rank) {
          REQUIRE(call.ranks[rank].memory.front() == sent);
          for (const auto& [to, count] : call.ranks[rank].sent_to) {
            if (hosts[rank] != hosts[to]) crossings += count;
          }
        }
        REQUIRE(crossings == (topology.hosts() - 1) * ((nbytes + 4 * kEager - 1) / (4 * kEager)));
      }
    }
  }
}

Call all_gather(Rank size, std::size_t nbytes) {
  Call call(size);
  for (Rank rank = 0; rank < size; ++rank) {
    Member& member = call.ranks[rank];
    member.terms = {.kind = Kind::all_gather, .rank = rank, .size = size};
    for (Rank each = 0; each < size; ++each) {
      member.terms.outs.push_back(member.array(Bytes(nbytes), true));
    }
    member.terms.ins = {member.array(Bytes(nbytes), true)};
  }
  REQUIRE(call.run());
  return call;
}

TEST_CASE("small blocks are gathered at once by a few ranks, in few steps by many") {
  CHECK(all_gather(8, kEager).ranks[3].sent == 7);
  CHECK(all_gather(8, kEager).ranks[3].steps == 2);
  CHECK(all_gather(13, 8).ranks[3].sent == 4);
  CHECK(all_gather(13, kEager).ranks[3].steps == 12);
}

}  // namespace
}  // namespace zerohop::engine::collective
