// How the threads of a team divide a copy, run one after another.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "zerohop/copy.h"

namespace {

using zerohop::device::u32;
using zerohop::device::u64;

struct Team {
  static inline u32 now = 0;
  static inline u32 all = 1;
  static u32 rank() { return now; }
  static u32 size() { return all; }
};

struct Arrays {
  explicit Arrays(std::size_t nbytes) : to(nbytes), from(nbytes) {
    std::mt19937 random(7);
    for (auto& byte : from) byte = static_cast<unsigned char>(random());
  }

  // Each byte arrives in its place, and none beside it is touched.
  bool copies(u64 start, u64 place, u64 nbytes, u32 threads) {
    std::memset(to.data(), 0xA5, to.size());
    std::vector<unsigned char> expected = to;
    std::memcpy(expected.data() + place, from.data() + start, nbytes);
    Team::all = threads;
    for (Team::now = 0; Team::now < threads; ++Team::now) {
      zerohop::device::copy_bytes<Team>(reinterpret_cast<u64>(to.data()) + place,
                                        reinterpret_cast<u64>(from.data()) + start, nbytes);
    }
    return to == expected;
  }

  std::vector<unsigned char> to, from;
};

TEST_CASE("bytes at all alignments") {
  Arrays arrays(512);
  for (const u32 threads : {1U, 32U}) {
    for (u64 start = 0; start < 17; ++start) {
      for (u64 place = 0; place < 17; ++place) {
        for (u64 nbytes = 0; nbytes < 300; nbytes += nbytes < 40 ? 1 : 13) {
          REQUIRE(arrays.copies(start, place, nbytes, threads));
        }
      }
    }
  }
}

TEST_CASE("several accesses of each thread, and several rounds") {
  constexpr u64 kNbytes = 300'000;
  Arrays arrays(kNbytes + 64);
  std::mt19937 random(3);
  for (const u32 threads : {1U, 32U, 50U, 256U, 1024U}) {
    for (const u64 per_thread : {16U, 32U, 64U, 80U, 128U, 144U, 257U}) {
      const u64 nbytes = std::min(kNbytes, per_thread * threads);
      REQUIRE(arrays.copies(0, 0, nbytes, threads));
      REQUIRE(arrays.copies(random() % 64, random() % 64, nbytes, threads));
    }
  }
}

}  // namespace
