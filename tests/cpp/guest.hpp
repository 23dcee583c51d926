// Visitors of a House without any manners, for the tests of cpp/ipc.
#pragma once

#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <vector>

#include "house.hpp"
#include "ipc/packet.hpp"

namespace zerohop::testing {

inline ipc::Packet wait_packet(int socket, std::span<std::byte> into, const Deadline& deadline) {
  for (;;) {
    if (auto packet = ipc::receive_packet(socket, into)) return std::move(*packet);
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

// A visitor without any manners.
struct Stranger {
  explicit Stranger(const House& house) : socket(ipc::connect_local(house.doorway.name())) {
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

// A visitor who looks into its pages by itself.
struct Guest : Stranger {
  explicit Guest(House& house) : Stranger(house) {
    REQUIRE(
        ipc::send_packet(socket.get(), ipc::bytes_of(ipc::Knock{.token = house.doorway.invite()})));
    std::array<std::byte, 1024> bytes;
    for (std::uint32_t gift = 0; gift < ipc::kGifts; ++gift) {
      gifts[gift] = wait_packet(socket.get(), bytes, soon()).fd;
    }
    page = std::make_unique<ipc::Mapping>(gift(ipc::Gift::hazards), sizeof(ipc::Hazards),
                                          /*writable=*/true);
  }
  int gift(ipc::Gift which) const { return gifts[static_cast<std::size_t>(which)].get(); }
  ipc::Hazards& hazards() { return *reinterpret_cast<ipc::Hazards*>(page->data()); }

  std::array<UniqueFd, ipc::kGifts> gifts;
  std::unique_ptr<ipc::Mapping> page;
};

}  // namespace zerohop::testing
