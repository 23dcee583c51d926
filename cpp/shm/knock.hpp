// The messages of a local server: plain values of one build, as both processes run on one machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/error.hpp"
#include "shm/exported_chunk.hpp"

namespace zerohop::shm {

// Sent to one peer over the control channel: admits that peer to the local server.
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
  // A word in the sender's memory and its content, by which the client finds out whether it can
  // access that process's memory.
  std::uint64_t probe_address = 0;
  std::uint64_t probe = 0;
};

enum class Wish : std::uint32_t {
  memory,  // request the memory with that key; the only wish with an answer
  wake,    // wake threads that sleep beside the board
};

struct Ask {
  Wish wish{};
  std::uint32_t sequence = 0;  // returned in the answer, as the key is
  std::uint64_t key = 0;
  std::uint64_t address = 0;  // address wanted; needed for memory exported in chunks
};

enum class Answer : std::uint32_t { offered, unknown_key, out_of_descriptors, refused };

struct Reply {
  Answer answer{};
  std::uint32_t sequence = 0;
  std::uint64_t key = 0;
  std::uint32_t slot = 0;
  std::uint64_t serial = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint32_t writable = 0;
  std::uint32_t has_pages = 0;  // a descriptor comes with it

  // An exported chunk, which may come with a descriptor, too.
  std::uint32_t handle_nbytes = 0;  // 0: no chunk
  std::array<std::byte, ExportedChunk::kMaxHandle> handle{};
  std::uint64_t chunk_begin = 0;
  std::uint64_t chunk_end = 0;

  std::array<char, 400> reason{};  // why it is refused; zero-terminated
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) noexcept {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
T value_of(std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(T)) {
    throw ProtocolError(
        "a process of this host sent an invalid message to the local server; both must run "
        "the "
        "same version of zerohop");
  }
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace zerohop::shm
