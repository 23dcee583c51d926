// A hand-made peer of soft0: sends the hello that a queue pair expects, followed by any bytes.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/unique_fd.hpp"
#include "soft_side.hpp"
#include "softhca/context.hpp"
#include "softhca/gid.hpp"
#include "softhca/hello.hpp"
#include "softhca/wire.hpp"

namespace zerohop::testing {

namespace wire = softhca::wire;

inline UniqueFd dial(const ibv_gid& gid) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = softhca::gid_address(gid);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

inline void say(const UniqueFd& fd, const void* bytes, std::size_t nbytes) {
  // The other side may have closed already, as most cases here expect.
  [[maybe_unused]] const ssize_t sent = ::send(fd.get(), bytes, nbytes, MSG_NOSIGNAL);
}

// Reads to the end of the stream; false if the other side keeps it open for too long.
inline bool is_closed(const UniqueFd& fd) {
  char sink[4096];
  pollfd watched{fd.get(), POLLIN, 0};
  for (;;) {
    const int ready = ::poll(&watched, 1, 20000);
    if (ready < 0 && errno == EINTR) continue;
    if (ready != 1) return false;
    const ssize_t nbytes = ::recv(fd.get(), sink, sizeof sink, MSG_DONTWAIT);
    if (nbytes == 0 || (nbytes < 0 && errno != EINTR && errno != EAGAIN)) return true;
  }
}

// Composes the hello that the queue pair at `target` expects.
class Forger {
 public:
  // Of two sides the one with the lower GID dials: this one is below every real one.
  explicit Forger(const Address& of_target) : target(of_target), gid(of_target.gid) {
    std::memset(gid.raw + 4, 0, 6);
  }

  softhca::Hello hello() const {
    softhca::Hello hello{};
    std::memcpy(hello.magic, softhca::kHelloMagic, sizeof softhca::kHelloMagic);
    hello.source = gid;
    hello.destination = target.gid;
    hello.source_qp = number;
    hello.destination_qp = target.number;
    hello.source_psn = psn;
    hello.destination_psn = target.psn;
    return hello;
  }
  Address address() const { return {number, psn, gid}; }

  // A connection that the target accepts as its peer's.
  UniqueFd enter() const {
    UniqueFd fd = dial(target.gid);
    const softhca::Hello greeting = hello();
    say(fd, &greeting, sizeof greeting);
    softhca::Hello welcome{};
    ssize_t nbytes = 0;
    do {
      nbytes = ::recv(fd.get(), &welcome, sizeof welcome, MSG_WAITALL);
    } while (nbytes < 0 && errno == EINTR);
    REQUIRE(nbytes == sizeof welcome);
    CHECK(welcome.source_qp == target.number);
    CHECK(welcome.destination_qp == number);
    return fd;
  }

  Address target;
  ibv_gid gid;
  std::uint32_t number = 0x4711;
  std::uint32_t psn = 0x99;
};

// A Side connected to a Forger.
struct Stage {
  explicit Stage(const SideOptions& options = {}) : side(options), forger(side.address()) {
    side.connect(forger.address());
  }
  UniqueFd enter() { return forger.enter(); }
  std::uint64_t rejected() { return softhca::Context::of(side.context).listener.rejected(); }

  Side side;
  Forger forger;
};

// Composed byte by byte; control_bytes is filled in unless it was set.
struct Frame {
  wire::Prefix prefix{};
  std::vector<std::byte> rest;

  void add(const void* bytes, std::size_t nbytes) {
    const std::size_t before = rest.size();
    rest.resize(before + nbytes);
    std::memcpy(&rest[before], bytes, nbytes);
  }
  void add(const wire::Check& check) { add(&check, sizeof check); }
  void add(const wire::Packet& packet) {
    add(&packet, sizeof packet);
    ++prefix.packets;
  }
  void send(const UniqueFd& fd) {
    if (prefix.control_bytes == 0) {
      prefix.control_bytes = static_cast<std::uint16_t>(sizeof prefix + rest.size());
    }
    say(fd, &prefix, sizeof prefix);
    say(fd, rest.data(), rest.size());
  }
};

inline wire::Packet packet_of(wire::Op op) {
  wire::Packet packet{};
  packet.op = op;
  return packet;
}

}  // namespace zerohop::testing
