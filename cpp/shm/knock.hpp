// What is said at a local server: plain values of one build, as both processes run on one machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/error.hpp"
#include "shm/exported_chunk.hpp"

namespace zerohop::shm {

// Told to one peer over the control channel: opens the local server for that peer.
using Token = std::array<std::byte, 32>;

inline constexpr std::uint32_t kLocalServerVersion = 5;

struct Knock {
  std::uint32_t version = kLocalServerVersion;
  Token token{};
};

// The answer to a knock: three packets in this order, each with a descriptor.
enum class Gift : std::uint32_t { generations, hazards, board };
inline constexpr std::uint32_t kGifts = 3;

struct Given {
  std::uint32_t version = kLocalServerVersion;
  Gift gift{};
  std::uint64_t nbytes = 0;  // of the memfd
  // A word of the giver's memory and its content, by which the client finds out whether it may
  // reach that process's memory.
  std::uint64_t probe_address = 0;
  std::uint64_t probe = 0;
};

enum class Wish : std::uint32_t {
  memory,  // under that key; the one wish that is answered
  wake,    // of who sleeps beside the board
};

struct Ask {
  Wish wish{};
  std::uint32_t sequence = 0;  // comes back in the answer, as the key does
  std::uint64_t key = 0;
  std::uint64_t address =
      0;  // that is to be reached: memory that goes in exported chunks is asked for so
};

enum class Answer : std::uint32_t { offered, unknown_key, out_of_descriptors, refused };

struct Told {
  Answer answer{};
  std::uint32_t sequence = 0;
  std::uint64_t key = 0;
  std::uint32_t slot = 0;
  std::uint64_t serial = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint32_t writable = 0;
  std::uint32_t has_pages = 0;  // a descriptor comes with it

  // Of an exported chunk, which may come with a descriptor, too.
  std::uint32_t handle_nbytes = 0;  // 0: it is none
  std::array<std::byte, ExportedChunk::kMaxHandle> handle{};
  std::uint64_t chunk_begin = 0;
  std::uint64_t chunk_end = 0;

  std::array<char, 400> reason{};  // why it is refused; ends with a zero
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) noexcept {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
T value_of(std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(T)) {
    throw ProtocolError(
        "a process of this host says at the local server what no correct one does; both must run "
        "the "
        "same version of zerohop");
  }
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace zerohop::shm
