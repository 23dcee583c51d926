// A process of this host with a local server, served by a thread, for the tests of cpp/shm.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/bell.hpp"
#include "base/buffer.hpp"
#include "base/layout.hpp"
#include "base/runs.hpp"
#include "shm/exposures.hpp"
#include "shm/local_server.hpp"
#include "shm/local_session.hpp"

namespace zerohop::testing {

inline constexpr Deadline::Seconds kSoon{20};
inline Deadline soon() { return Deadline::after(kSoon); }

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

inline Layout bytes_at(std::uint64_t address, std::uint64_t nbytes) {
  const auto size = static_cast<std::int64_t>(nbytes);
  return Layout::contiguous(address, DType{.code = kDTypeUInt, .bits = 8, .lanes = 1},
                            std::span(&size, 1));
}

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
  return copy(session, mapping, direction, bytes_at(reinterpret_cast<std::uintptr_t>(ours), nbytes),
              bytes_at(theirs, nbytes));
}

}  // namespace zerohop::testing
