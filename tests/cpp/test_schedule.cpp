// What the ranks of a collective that moves blocks send, receive and copy.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "all_ranks.hpp"

namespace zerohop::engine::collective {
namespace {

TEST_CASE("a block is broadcast from any root, whole and in pieces") {
  for_all([](Rank size, Size bytes, Rank far) {
    for (Rank root = 0; root < size; ++root) {
      for (const std::uint64_t piece : {std::uint64_t{0}, std::uint64_t{10'000}}) {
        AllRanks call(size);
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
        AllRanks call(size);
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
      AllRanks call(size);
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
      AllRanks call(size);
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

AllRanks broadcast(Rank size, std::size_t nbytes, std::uint64_t piece) {
  AllRanks call(size);
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
  const AllRanks chain = broadcast(4, 10 * kEager, kEager);
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
        AllRanks call(size);
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

AllRanks all_gather(Rank size, std::size_t nbytes) {
  AllRanks call(size);
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
  CHECK(all_gather(8, kEager).ranks[3].steps == 1);
  CHECK(all_gather(8, 8).ranks[3].steps == 1);
  CHECK(all_gather(13, 8).ranks[3].sent == 4);
  CHECK(all_gather(13, kEager).ranks[3].steps == 12);
}

}  // namespace
}  // namespace zerohop::engine::collective
