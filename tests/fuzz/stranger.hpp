// The other end of a control connection, by hand: it knows the secret and says anything.
#pragma once

#include <poll.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/channel/address.hpp"
#include "engine/channel/channel.hpp"
#include "engine/channel/control_message.hpp"
#include "engine/channel/endpoint_key.hpp"
#include "engine/channel/socket.hpp"
#include "input.hpp"

namespace zerohop::fuzz {

using engine::Channel;
using engine::ControlMessage;

using Key = std::shared_ptr<const engine::EndpointKey>;

class Stranger {
 public:
  explicit Stranger(std::unique_ptr<Channel> channel, Key key = make_key())
      : channel_(std::move(channel)), key_(std::move(key)) {}

  static Key make_key() { return std::make_shared<const engine::EndpointKey>(); }
  static Stranger dial(const engine::Address& address, Key key = make_key()) {
    return Stranger(
        Channel::initiate(engine::start_connect(address.host, address.port), address.secret),
        std::move(key));
  }

  const engine::EndpointId& id() const noexcept { return key_->id(); }
  // Proves its own id, whichever that Hello tells.
  void greet(engine::Hello hello) {
    hello.proof = key_->prove(channel_->own_prologue());
    say(hello);
  }

  bool closed() const { return channel_->state() == Channel::State::closed; }
  void say(std::span<const std::byte> bytes) {
    try {
      channel_->send(bytes);
    } catch (const Error&) {  // it is closed
    }
  }
  void say(const ControlMessage& message) { say(engine::encode(message)); }

  // What has come meanwhile. Undecodable bytes from an honest side are a fault of that side.
  void hear() {
    channel_->progress([this](std::span<const std::byte> bytes) {
      heard_.push_back(engine::decode_control_message(bytes));
    });
  }
  // Listens until done() or the end of the connection, ten seconds at most.
  template <typename Done>
  void hear_until(Done done) {
    for (int looks = 0; looks < 1000; ++looks) {
      hear();
      if (closed() || done()) return;
      const short wanted = channel_->wants_write() ? POLLIN | POLLOUT : POLLIN;
      pollfd waited{.fd = channel_->fd(), .events = wanted, .revents = 0};
      ::poll(&waited, 1, 10);
    }
    require(false, "the other side answers or hangs up");
  }
  // Everything said is taken in: a name that nobody shares was looked up and not found, or it hung
  // up.
  void settle() {
    const std::uint64_t request = --last_request_;
    say(engine::Lookup{.request = request, .name = "nobody shares this"});
    hear_until([&] {
      return find<engine::NotFound>([&](const auto& m) { return m.request == request; });
    });
  }

  template <typename Message, typename Fits>
  const Message* find(Fits fits) const {
    for (const ControlMessage& message : heard_) {
      const auto* const found = std::get_if<Message>(&message);
      if (found != nullptr && fits(*found)) return found;
    }
    return nullptr;
  }
  const engine::Hello* hello() const {
    return find<engine::Hello>([](const auto&) { return true; });
  }

 private:
  std::unique_ptr<Channel> channel_;
  Key key_;
  std::vector<ControlMessage> heard_;
  std::uint64_t last_request_ = ~std::uint64_t{0};
};

// A queue pair of soft0 on this host, of which nobody knows.
inline rdma::QueuePairAddress take_queue_pair(Input& input) {
  rdma::QueuePairAddress address;
  address.number = input.byte() % 4 == 0 ? input.take<std::uint32_t>() : input.byte();
  address.psn = input.byte() % 4 == 0 ? input.take<std::uint32_t>() : input.byte();
  const std::uint8_t gid[16] = {0xfd, 'z', 'h', 1, 0, 0, 0, 0, 0, input.byte(), 127, 0, 0, 1, 0, 9};
  std::memcpy(address.gid.raw, gid, sizeof gid);
  if (input.byte() % 8 == 0) address.gid.raw[input.below(10)] = input.byte();
  address.lid = input.byte();
  address.mtu = input.byte() % 2 == 0 ? std::uint8_t{5} : input.byte();
  address.reads_in = input.byte();
  address.reads_out = input.byte();
  return address;
}

inline engine::Hello take_hello(Input& input, const engine::EndpointId& own) {
  engine::Hello hello;
  hello.id = own;
  if (input.byte() % 8 == 0) hello.id[0] ^= std::byte{input.byte()};
  if (input.byte() % 32 == 0) hello.version = input.byte();
  hello.name = input.text(8);
  hello.host_name = input.text(8);
  hello.pid = input.byte();
  const std::size_t rails = input.byte() % 8 == 0 ? input.below(engine::kMaxRails + 1) : 1;
  for (std::size_t i = 0; i < rails; ++i) hello.queue_pairs.push_back(take_queue_pair(input));
  hello.global_atomics = input.byte();
  hello.receive_slots = input.byte() % 8 == 0 ? input.take<std::uint32_t>() : 64;
  hello.slot_nbytes = input.byte() % 8 == 0 ? input.take<std::uint32_t>() : 8192;
  hello.local_server = input.byte() % 4 == 0 ? input.text(64) : "";
  hello.established = input.byte() % 8 == 0 ? input.byte() : 0xffff;  // never yields
  hello.integrity = static_cast<std::uint8_t>(hello.pid % 2);         // takes no byte of its own
  return hello;
}

}  // namespace zerohop::fuzz
