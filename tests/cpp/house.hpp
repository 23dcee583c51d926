// A process of this host with a local server, served by a thread, and raw clients of it, which keep
// no rules, for the tests of cpp/shm.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/bell.hpp"
#include "base/buffer.hpp"
#include "base/layout.hpp"
#include "base/runs.hpp"
#include "eventually.hpp"
#include "shm/exposures.hpp"
#include "shm/local_server.hpp"
#include "shm/local_session.hpp"
#include "shm/packet.hpp"

namespace zerohop::testing {

inline constexpr std::uint64_t kBoardNbytes = 4096;

inline std::shared_ptr<shm::LocalSession> enter(const std::string& local_server,
                                                const shm::Token& token) {
  auto session = shm::LocalSession::begin(local_server, token, kBoardNbytes);
  session->enter(soon());
  return session;
}

class House {
 public:
  House() : server_([this] { serve(); }) {}
  ~House() {
    stopping_.store(true);
    leave_.ring();
    server_.join();
  }

  std::shared_ptr<shm::LocalSession> session() {
    return enter(local_server.name(), local_server.invite());
  }

  Buffer board{kBoardNbytes};
  std::shared_ptr<shm::Exposures> exposures = std::make_shared<shm::Exposures>();
  shm::LocalServer local_server{exposures, board};
  std::atomic<int> rung{0};

 private:
  void serve() {
    while (!stopping_.load()) {
      pollfd watched[] = {{.fd = local_server.fd(), .events = POLLIN, .revents = 0},
                          {.fd = leave_.fd(), .events = POLLIN, .revents = 0}};
      ::poll(watched, 2, -1);
      if (local_server.serve()) rung.fetch_add(1);
    }
  }

  Bell leave_;
  std::atomic<bool> stopping_{false};
  std::thread server_;  // last: uses all of the above
};

// Memory of a house: a memfd, or plain memory that other processes reach only through the kernel.
class Room {
 public:
  Room(House& house, std::uint64_t nbytes, bool has_pages = true, bool writable = true)
      : pages_(has_pages ? nbytes : 0), plain_(has_pages ? 0 : nbytes) {
    exposure = house.exposures->expose(
        {.begin = address(), .end = address() + nbytes, .writable = writable},
        {.memfd = has_pages ? pages_.fd() : -1}, memory);
    REQUIRE(exposure);
  }

  std::byte* data() { return pages_.nbytes() > 0 ? pages_.data() : plain_.data(); }
  std::uint64_t address() { return reinterpret_cast<std::uintptr_t>(data()); }

  std::shared_ptr<int> memory = std::make_shared<int>(0);  // represents what keeps it alive
  std::shared_ptr<shm::Exposure> exposure;

 private:
  Buffer pages_;
  std::vector<std::byte> plain_;
};

struct CopyResult {
  shm::Copied outcome;
  std::uint64_t nbytes;
};

inline CopyResult copy(shm::LocalSession& session, const shm::RemoteMapping& mapping,
                       shm::Direction direction, const Layout& ours, const Layout& theirs) {
  Runs runs(ours, theirs);
  CopyResult result{.outcome = shm::Copied::all, .nbytes = 0};
  result.outcome = session.copy(mapping, direction, runs, result.nbytes);
  return result;
}

inline CopyResult copy(shm::LocalSession& session, const shm::RemoteMapping& mapping,
                       shm::Direction direction, void* ours, std::uint64_t theirs,
                       std::uint64_t nbytes) {
  return copy(session, mapping, direction,
              Layout::bytes(reinterpret_cast<std::uintptr_t>(ours), nbytes),
              Layout::bytes(theirs, nbytes));
}

inline shm::Packet wait_packet(int socket, std::span<std::byte> into, const Deadline& deadline) {
  for (;;) {
    if (auto packet = shm::receive_packet(socket, into)) return std::move(*packet);
    pollfd waited{.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waited, 1, deadline.remaining_ms());
    REQUIRE((ready == 1 || (ready < 0 && errno == EINTR)));
  }
}

inline std::vector<std::byte> pattern(std::size_t nbytes, unsigned seed = 1) {
  std::vector<std::byte> bytes(nbytes);
  for (std::size_t i = 0; i < nbytes; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed);
  return bytes;
}

// A raw client that keeps no rules.
struct Stranger {
  explicit Stranger(const House& house) : socket(shm::connect_local(house.local_server.name())) {
    REQUIRE(socket);
  }
  bool is_shown_out() {
    std::array<std::byte, 1024> bytes;
    return wait_packet(socket.get(), bytes, soon()).nbytes == 0;
  }
  bool is_out() const {  // by now
    pollfd watched{socket.get(), POLLIN, 0};
    return ::poll(&watched, 1, 0) == 1;
  }
  UniqueFd socket;
};

// A client that reads its pages directly.
struct Guest : Stranger {
  explicit Guest(House& house) : Stranger(house) {
    REQUIRE(shm::send_packet(socket.get(),
                             shm::bytes_of(shm::Knock{.token = house.local_server.invite()})));
    std::array<std::byte, 1024> bytes;
    for (std::uint32_t gift = 0; gift < shm::kGifts; ++gift) {
      gifts[gift] = wait_packet(socket.get(), bytes, soon()).fd;
    }
    page = std::make_unique<shm::Mapping>(gift(shm::Gift::hazards), sizeof(shm::Hazards),
                                          /*writable=*/true);
  }
  int gift(shm::Gift which) const { return gifts[static_cast<std::size_t>(which)].get(); }
  shm::Hazards& hazards() { return *reinterpret_cast<shm::Hazards*>(page->data()); }

  std::array<UniqueFd, shm::kGifts> gifts;
  std::unique_ptr<shm::Mapping> page;
};

}  // namespace zerohop::testing
