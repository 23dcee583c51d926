// The control connection below its messages: a stranger's bytes to either side, and somebody on the
// wire between two honest sides who changes, drops, repeats and sends back what they say.
#include "base/error.hpp"
#include "input.hpp"
#include "wiretap.hpp"

namespace {

using namespace zerohop;
using namespace zerohop::testing;
using zerohop::fuzz::Input;
using zerohop::fuzz::require;

constexpr std::size_t kMostMessages = 4;

const Bytes& message_of(Side from, std::size_t number) {
  static const std::array<std::vector<Bytes>, 2> said = {
      messages({"from the initiator", "", "second", "third"}),
      messages({"from the acceptor", "longer than the others are, by far", "", "x"})};
  return said[from][number];
}

Bytes edited(Input& input, Bytes bytes, const Bytes& other_way) {
  if (bytes.empty()) return bytes;
  switch (input.byte() % 8) {
    case 0: bytes[input.below(bytes.size())] ^= std::byte{input.byte()}; break;
    case 1: bytes.resize(input.below(bytes.size())); break;
    case 2: bytes.insert(bytes.end(), bytes.begin(), bytes.end()); break;
    case 3: return input.blob();
    case 4: return other_way;
    case 5: {
      const Bytes more = input.blob();
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(input.below(bytes.size())),
                   more.begin(), more.end());
      break;
    }
    default: break;
  }
  return bytes;
}

// Whatever reaches a side is what the other said, in order and without gaps.
void check_received(const Wiretap& wire, Side side) {
  const Side from = side == kInitiator ? kAcceptor : kInitiator;
  const auto& received = wire.received(side);
  for (std::size_t i = 0; i < received.size(); ++i) {
    require(i < kMostMessages && received[i] == message_of(from, i), "only what was said arrives");
  }
}

void send_quietly(Channel& channel, const Bytes& message) {
  try {
    channel.send(message);
  } catch (const Error&) {  // it is closed
  }
}

void tamper(Input& input) {
  engine::Secret used{};
  if (input.byte() % 16 == 0) used[3] = std::byte{1};  // a wrong secret
  Wiretap wire(used, {});
  std::array<Bytes, 2> before;
  wire.edit([&](Side from, std::size_t, Bytes bytes) {
    before[from] = bytes;
    return edited(input, std::move(bytes), before[from == kInitiator ? kAcceptor : kInitiator]);
  });
  for (std::size_t number = 0; number < kMostMessages; ++number) {
    for (const Side side : {kInitiator, kAcceptor}) {
      send_quietly(wire[side], message_of(side, number));
    }
    wire.run();
  }
  for (const Side side : {kInitiator, kAcceptor}) {
    require(used == engine::Secret{} || wire[side].state() != Channel::State::open,
            "who does not know the secret is not let in");
    check_received(wire, side);
  }
}

void be_stranger(Input& input, bool to_acceptor) {
  auto [theirs, ours] = socket_pair();
  const auto channel = to_acceptor ? Channel::accept(std::move(theirs), {})
                                   : Channel::initiate(std::move(theirs), {});
  const auto refuse = [](std::span<const std::byte>) { require(false, "a stranger is not heard"); };
  while (!input.empty()) {
    put_bytes(ours.get(), input.blob());
    if (!channel->progress(refuse)) return;
    take_bytes(ours.get());
  }
  ::shutdown(ours.get(), SHUT_WR);
  require(!channel->progress(refuse), "the end of the stream ends the channel");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  Input input(data, nbytes);
  const std::uint8_t what = input.byte() % 4;
  what < 2 ? be_stranger(input, what == 0) : tamper(input);
  return 0;
}
