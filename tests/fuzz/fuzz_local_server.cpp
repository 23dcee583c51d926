// Processes of this host at the local server: strangers without a token, and guests who send any
// packets and descriptors and spoil the pages that they share, while the owner opens and closes
// memory.
#include <fcntl.h>
#include <unistd.h>

#include <list>

#include "engine/notify/board.hpp"
#include "house.hpp"
#include "input.hpp"

namespace {

using namespace zerohop;
using namespace zerohop::testing;
using zerohop::fuzz::Input;
using zerohop::fuzz::require;

constexpr std::size_t kMostSteps = 48;
constexpr std::size_t kMostGuests = 4;

int count_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

class Siege {
 public:
  explicit Siege(Input& input) : input_(input) {}

  void play() {
    for (std::size_t step = 0; step < kMostSteps && !input_.empty(); ++step) {
      switch (input_.byte() % 8) {
        case 0: strangers_.emplace_back(house_); break;
        case 1: arrive(); break;
        case 2: leave(); break;
        case 3: spoil(); break;
        case 4: act_as_owner(); break;
        default: say(); break;
      }
    }
    check_others();
  }

 private:
  void arrive() {
    if (guests_.size() < kMostGuests) guests_.emplace_back(house_);
  }
  void leave() {
    if (!guests_.empty() && input_.flag()) guests_.pop_front();
    if (!strangers_.empty()) strangers_.pop_front();
  }
  Guest* guest() { return guests_.empty() ? nullptr : &guests_.back(); }

  std::vector<std::byte> take_packet() {
    shm::Ask ask{.wish = static_cast<shm::Wish>(input_.byte() % 3), .sequence = input_.byte()};
    ask.key = rooms_.empty() ? input_.take<std::uint64_t>() : rooms_.back().exposure->key();
    ask.address = input_.take<std::uint64_t>();
    shm::Knock knock{};
    knock.version = input_.byte() % 4 == 0 ? input_.byte() : shm::kLocalServerVersion;
    switch (input_.byte() % 4) {
      case 0: return input_.blob();
      case 1: return {shm::bytes_of(knock).begin(), shm::bytes_of(knock).end()};
      default: return {shm::bytes_of(ask).begin(), shm::bytes_of(ask).end()};
    }
  }

  void say() {
    const bool as_guest = guest() != nullptr && input_.byte() % 4 != 0;
    if (!as_guest && strangers_.empty()) strangers_.emplace_back(house_);
    const int socket = as_guest ? guest()->socket.get() : strangers_.back().socket.get();
    const int descriptor = input_.byte() % 8 == 0 ? STDERR_FILENO : -1;
    shm::send_packet(socket, take_packet(), descriptor);
  }

  // Words of the pages that it shares with the owner, or of the board.
  void spoil() {
    if (guest() == nullptr) return;
    auto* const words = reinterpret_cast<std::atomic<std::uint32_t>*>(&guest()->hazards());
    words[input_.below(sizeof(shm::Hazards) / 4)].store(
        input_.flag() ? 1 : input_.take<std::uint32_t>());
  }

  void act_as_owner() {
    switch (input_.byte() % 4) {
      case 0: rooms_.emplace_back(house_, 4096, input_.flag(), input_.flag()); break;
      case 1:
        if (!rooms_.empty()) {
          const auto entry = rooms_.back().exposure->entry();
          rooms_.back().exposure.reset();
          house_.exposures->settle(entry, Deadline::after(Deadline::Seconds(0)));
          rooms_.pop_back();
        }
        break;
      case 2: house_.exposures->sweep(); break;
      default: house_.exposures->forget_gone(); break;
    }
  }

  // An honest client is let in and copies, whatever the others have done.
  void check_others() {
    Room room(house_, 64);
    const auto session = house_.session();
    const auto mapping = session->open(room.exposure->key(), 0, soon()).mapping;
    require(mapping && mapping->trouble.empty(), "others are given what is theirs");
    std::array<std::byte, 64> bytes;
    bytes.fill(std::byte{7});
    const auto [outcome, nbytes] =
        copy(*session, *mapping, shm::Direction::write, bytes.data(), room.address(), bytes.size());
    require(outcome == shm::Copied::all && nbytes == bytes.size(), "others can copy");
    require(room.data()[63] == std::byte{7}, "what they copy arrives");
    session->end();
  }

  Input& input_;
  House house_;
  std::list<Room> rooms_;
  std::list<Stranger> strangers_;
  std::list<Guest> guests_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  const int before = count_descriptors();
  Input input(data, nbytes);
  Siege(input).play();
  require(count_descriptors() == before, "no descriptor is left open");
  return 0;
}
