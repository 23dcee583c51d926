// A process of this host with a doorway, served by a thread, for the tests of cpp/ipc.
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
#include "ipc/doorway.hpp"
#include "ipc/exposures.hpp"
#include "ipc/visit.hpp"

namespace zerohop::testing {

inline constexpr Deadline::Seconds kSoon{20};
inline Deadline soon() { return Deadline::after(kSoon); }

inline constexpr std::uint64_t kBoardNbytes = 4096;

inline std::shared_ptr<ipc::Visit> enter(const std::string& doorway, const ipc::Token& token) {
  auto visit = ipc::Visit::begin(doorway, token, kBoardNbytes);
  visit->enter(soon());
  return visit;
}

class House {
 public:
  House() : server_([this] { serve(); }) {}
  ~House() {
    stopping_.store(true);
    leave_.ring();
    server_.join();
  }

  std::shared_ptr<ipc::Visit> visit() { return enter(doorway.name(), doorway.invite()); }

  Buffer board{kBoardNbytes};
  std::shared_ptr<ipc::Exposures> exposures = std::make_shared<ipc::Exposures>();
  ipc::Doorway doorway{exposures, board};
  std::atomic<int> rung{0};

 private:
  void serve() {
    while (!stopping_.load()) {
      pollfd watched[] = {{.fd = doorway.fd(), .events = POLLIN, .revents = 0},
                          {.fd = leave_.fd(), .events = POLLIN, .revents = 0}};
      ::poll(watched, 2, -1);
      if (doorway.serve()) rung.fetch_add(1);
    }
  }

  Bell leave_;
  std::atomic<bool> stopping_{false};
  std::thread server_;  // last: uses all of the above
};

// Memory of a house: a memfd, or plain memory that only the kernel reaches from outside.
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

  std::shared_ptr<int> memory = std::make_shared<int>(0);  // stands for what keeps it alive
  std::shared_ptr<ipc::Exposure> exposure;

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
  ipc::Copied outcome;
  std::uint64_t nbytes;
};

inline CopyResult copy(ipc::Visit& visit, const ipc::Window& window, ipc::Direction direction,
                       const Layout& ours, const Layout& theirs) {
  Runs runs(ours, theirs);
  CopyResult result{.outcome = ipc::Copied::all, .nbytes = 0};
  result.outcome = visit.copy(window, direction, runs, result.nbytes);
  return result;
}

inline CopyResult copy(ipc::Visit& visit, const ipc::Window& window, ipc::Direction direction,
                       void* ours, std::uint64_t theirs, std::uint64_t nbytes) {
  return copy(visit, window, direction, bytes_at(reinterpret_cast<std::uintptr_t>(ours), nbytes),
              bytes_at(theirs, nbytes));
}

}  // namespace zerohop::testing
