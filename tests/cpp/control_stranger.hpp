// The other end of a control connection, made by hand: it knows the secret, sends a Hello with a
// queue pair that does not exist, and reads the answers.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <variant>
#include <vector>

#include "couple.hpp"
#include "engine/channel/channel.hpp"
#include "engine/channel/control_message.hpp"
#include "engine/channel/endpoint_key.hpp"
#include "engine/channel/socket.hpp"

namespace zerohop::testing {

class ControlStranger {
 public:
  explicit ControlStranger(const engine::Address& to)
      : channel_(engine::Channel::initiate(engine::start_connect(to.host, to.port), to.secret)) {}

  const engine::EndpointId& id() const noexcept { return key_.id(); }

  // Becomes a peer.
  void enter() {
    greet();
    await<engine::Hello>(1);
    say(engine::Ready{});
  }
  void greet() {
    engine::Hello hello;
    hello.id = id();
    hello.proof = key_.prove(channel_->own_prologue());
    hello.name = "stranger";
    hello.queue_pairs.push_back(queue_pair());
    hello.receive_slots = 64;
    hello.slot_nbytes = 8192;
    hello.established = 0xffff;  // never yields
    say(hello);
  }
  void say(const engine::ControlMessage& message) { channel_->send(engine::encode(message)); }

  // Reads until so many messages of that kind have arrived.
  template <typename Message>
  void await(std::size_t count) {
    const Deadline deadline = soon();
    while (hear() && heard<Message>() < count && !deadline.passed()) {
      const short wanted = channel_->wants_write() ? POLLIN | POLLOUT : POLLIN;
      pollfd waited{.fd = channel_->fd(), .events = wanted, .revents = 0};
      ::poll(&waited, 1, deadline.remaining_ms());
    }
    REQUIRE(heard<Message>() >= count);
  }
  // False: the other end has hung up.
  bool hear() {
    return channel_->progress([this](std::span<const std::byte> bytes) {
      heard_.push_back(engine::decode_control_message(bytes));
    });
  }
  template <typename Message>
  std::size_t heard() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        heard_, [](const auto& each) { return std::holds_alternative<Message>(each); }));
  }

  // Below every GID of soft0 on this host: the lower one of two ends dials, which this never does.
  static rdma::QueuePairAddress queue_pair() {
    rdma::QueuePairAddress address;
    address.number = 0x4711;
    address.mtu = IBV_MTU_4096;
    address.reads_in = address.reads_out = 16;
    const std::uint8_t gid[16] = {0xfd, 'z', 'h', 1, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1, 9};
    std::memcpy(address.gid.raw, gid, sizeof gid);
    return address;
  }

 private:
  const engine::EndpointKey key_;
  const std::unique_ptr<engine::Channel> channel_;
  std::vector<engine::ControlMessage> heard_;
};

}  // namespace zerohop::testing
