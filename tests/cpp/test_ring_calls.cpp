// The code of the headers for kernels, run by CPU threads. They share a queue in the mlx5 layout;
// the software HCA executes what they write, like an adapter. Calls through a ring: test_proxy.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.hpp"
#include "cpu_words.hpp"
#include "direct_side.hpp"
#include "zerohop/copy.h"
#include "zerohop/crc32c.h"
#include "zerohop/send_ring.h"

namespace zerohop::testing {
namespace {

using device::Status;

// --- many threads and one ring ---

namespace device = zerohop::device;
namespace mlx5_entries = zerohop::device::mlx5;
using User = device::RingUser<CpuWords>;
constexpr std::uint64_t kPatienceNs = 20'000'000'000;

device::SendRing ring_of(const DirectSide& side, device::RingState& state) {
  const auto address = [](const auto* at) { return reinterpret_cast<std::uint64_t>(at); };
  const mlx5dv_qp& qp = side.sends.qp;
  const mlx5dv_cq& cq = side.completions.cq;
  return {.entries = address(qp.sq.buf),
          .record = address(&qp.dbrec[MLX5_SND_DBR]),
          .doorbell = address(qp.bf.reg),
          .completions = address(cq.buf),
          .consumed = address(&cq.dbrec[0]),
          .state = address(&state),
          .queue_pair = side.sends.qp_number,
          .blocks = qp.sq.wqe_cnt,
          .places = cq.cqe_cnt};
}

struct Ring {
  DirectPair pair;
  device::RingState state;
  device::SendRing ring = ring_of(pair.a, state);
  User user{ring};

  // `count` writes of 8 bytes, the last one signaled, in one go, as a warp makes them.
  Status write(std::uint32_t first, std::uint32_t count, device::Ticket& ticket,
               std::uint64_t patience = kPatienceNs) {
    const auto fill = [&](std::uint32_t index, std::uint32_t flags, std::uint32_t i) {
      const std::uint64_t value = value_of(first + i);
      const mlx5_entries::Range to{pair.b.at(8 * (first + i)), pair.b.mr->rkey};
      return mlx5_entries::write_inline({ring.queue_pair, index, flags}, to, &value, sizeof value);
    };
    return user.post(count, patience, fill, ticket);
  }
  static std::uint64_t value_of(std::uint32_t number) { return 0x1234'5678'9abc'def0 ^ number; }
  bool has(std::uint32_t number) const {
    std::uint64_t found = 0;
    std::memcpy(&found, &pair.b.buffer[8 * number], sizeof found);
    return found == value_of(number);
  }
};

TEST_CASE("threads share a ring that goes round many times") {
  Ring shared;
  const std::uint32_t room = static_cast<std::uint32_t>(shared.pair.b.options.nbytes / 8);
  constexpr std::uint32_t kThreads = 4;
  const std::uint32_t each = room / kThreads;
  for (const std::uint32_t batch : {1U, 2U, std::min(32U, shared.ring.blocks / 2)}) {
    std::fill_n(shared.pair.b.buffer.get(), shared.pair.b.options.nbytes, std::byte{0});
    std::atomic<int> failures = 0;
    std::vector<std::thread> threads;
    for (std::uint32_t number = 0; number < kThreads; ++number) {
      threads.emplace_back([&, number] {
        device::Ticket last;
        for (std::uint32_t i = 0; i + batch <= each; i += batch) {
          if (shared.write(number * each + i, batch, last) != Status::ok) ++failures;
        }
        if (shared.user.wait(last, kPatienceNs) != Status::ok) ++failures;
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(failures == 0);
    CHECK(shared.state.counts.done == shared.state.counts.reserved);
    CHECK(shared.state.counts.reserved > 4 * shared.ring.blocks);
    for (std::uint32_t i = 0; i < kThreads * (each / batch * batch); ++i) {
      const std::uint32_t number = i / (each / batch * batch) * each + i % (each / batch * batch);
      REQUIRE(shared.has(number));
    }
  }
}

TEST_CASE("a ring without room ends a wait in time, and has room later") {
  DirectSide idle;  // not connected: nothing is executed
  device::RingState state;
  const device::SendRing ring = ring_of(idle, state);
  const User user(ring);
  std::uint32_t index = 0;
  REQUIRE(user.reserve(ring.blocks, 0, index) == Status::ok);
  CHECK(user.reserve(1, 20'000'000, index) == Status::timed_out);
  CHECK(user.wait({ring.blocks}, 20'000'000) == Status::timed_out);
  CHECK(state.counts.reserved == ring.blocks);
}

TEST_CASE("an entry that fails is seen by all") {
  Ring ring;
  device::Ticket ticket;
  REQUIRE(ring.write(0, 1, ticket) == Status::ok);
  REQUIRE(ring.user.wait(ticket, kPatienceNs) == Status::ok);
  std::uint32_t index = 0;
  REQUIRE(ring.user.reserve(1, kPatienceNs, index) == Status::ok);
  const std::uint64_t value = 1;
  const auto wrong =
      mlx5_entries::write_inline({.queue_pair = ring.ring.queue_pair, .index = index},
                                 {ring.pair.b.at(0), ring.pair.b.mr->rkey + 99}, &value, 8);
  ring.user.write(index, wrong);
  ticket = ring.user.submit(index, 1, wrong.doorbell());
  CHECK(ring.user.wait(ticket, kPatienceNs) == Status::failed);
  CHECK(ring.write(1, 1, ticket) == Status::failed);
  CHECK(ring.has(0));
}

// --- checksums, as a whole and in the parts that threads compute ---

std::vector<std::byte> random_bytes(std::size_t nbytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(nbytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// As `size` threads of a kernel compute it.
std::uint32_t by_threads(std::span<const std::byte> bytes, std::uint32_t size) {
  const auto address = reinterpret_cast<std::uint64_t>(bytes.data());
  std::uint32_t all = 0;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    all ^= device::crc::part(address, bytes.size(), rank, size);
  }
  return ~all;
}

std::uint32_t of_text(const std::string& text) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())));
}

TEST_CASE("known values") {
  CHECK(of_text("") == 0);
  CHECK(of_text("123456789") == 0xe3069283);
  // RFC 3720, appendix B.4.
  CHECK(crc32c(std::vector<std::byte>(32)) == 0x8a9136aa);
  CHECK(crc32c(std::vector<std::byte>(32, std::byte{0xff})) == 0x62a8ab43);
  std::vector<std::byte> rising(32);
  for (std::size_t i = 0; i < 32; ++i) rising[i] = static_cast<std::byte>(i);
  CHECK(crc32c(rising) == 0x46dd794e);
}

TEST_CASE("however many threads take part, and wherever the bytes begin") {
  const std::vector<std::byte> bytes = random_bytes(5000, 1);
  for (const std::size_t nbytes : {0, 1, 3, 15, 16, 17, 100, 1023, 4096, 4999}) {
    for (const std::size_t begin : {0, 1}) {
      const auto range = std::span(bytes).subspan(begin, nbytes);
      const std::uint32_t whole = crc32c(range);
      for (const std::uint32_t size : {1, 2, 31, 32, 256, 1024}) {
        CHECK(by_threads(range, size) == whole);
      }
    }
  }
}

TEST_CASE("every changed bit is seen") {
  std::vector<std::byte> bytes = random_bytes(200, 2);
  const std::uint32_t before = crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK(crc32c(bytes) != before);
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST_CASE("a value is never empty") {
  CHECK(device::crc::as_value(0) == 1);
  CHECK(device::crc::as_value(7) == 7);
}

// --- how the threads of a team divide a copy ---

using device::u32;
using device::u64;

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
      device::copy_bytes<Team>(reinterpret_cast<u64>(to.data()) + place,
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
}  // namespace zerohop::testing
