// Raw clients of a House, which keep no rules, for the tests of cpp/shm.
#pragma once

#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <vector>

#include "house.hpp"
#include "shm/packet.hpp"

namespace zerohop::testing {

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
