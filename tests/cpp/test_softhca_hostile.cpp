// Strangers at the door of soft0 and corrupt bytes on its connections: nothing crashes, nothing
// leaks in.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "base/unique_fd.hpp"
#include "soft_side.hpp"
#include "softhca/context.hpp"
#include "softhca/gid.hpp"
#include "softhca/hello.hpp"
#include "softhca/wire.hpp"

using namespace zerohop::testing;
using namespace zerohop::softhca;
using zerohop::UniqueFd;
namespace wire = zerohop::softhca::wire;

namespace {

UniqueFd dial(const ibv_gid& gid) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = gid_address(gid);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

void say(const UniqueFd& fd, const void* bytes, std::size_t nbytes) {
  // The other side may have closed already: that is what most cases here expect.
  [[maybe_unused]] const ssize_t sent = ::send(fd.get(), bytes, nbytes, MSG_NOSIGNAL);
}

// Reads to the end of the stream; false when the other side keeps it open for too long.
bool is_closed(const UniqueFd& fd) {
  char sink[4096];
  pollfd watched{fd.get(), POLLIN, 0};
  while (::poll(&watched, 1, 20000) == 1) {
    if (::recv(fd.get(), sink, sizeof sink, 0) <= 0) return true;
  }
  return false;
}

// A forged peer: knows how to say the hello that `side` expects.
class Forger {
 public:
  // Of the two sides the one with the lower GID dials: this one is below every real one.
  explicit Forger(Side& side) : target(side), gid(side.address().gid) {
    std::memset(gid.raw + 4, 0, 6);
  }

  Hello hello() const {
    Hello hello{};
    std::memcpy(hello.magic, kHelloMagic, sizeof kHelloMagic);
    hello.source = gid;
    hello.destination = target.address().gid;
    hello.source_qp = number;
    hello.destination_qp = target.qp->qp_num;
    hello.source_psn = psn;
    hello.destination_psn = target.address().psn;
    return hello;
  }
  Address address() const { return {number, psn, gid}; }

  Side& target;
  ibv_gid gid;
  std::uint32_t number = 0x4711;
  std::uint32_t psn = 0x99;
};

struct Stage {
  explicit Stage(const SideOptions& options = {}) : side(options), forger(side) {
    side.connect(forger.address());
  }
  // A connection that the side takes for its peer's.
  UniqueFd enter() {
    UniqueFd fd = dial(side.address().gid);
    const Hello hello = forger.hello();
    say(fd, &hello, sizeof hello);
    Hello welcome{};
    REQUIRE(::recv(fd.get(), &welcome, sizeof welcome, MSG_WAITALL) == sizeof welcome);
    CHECK(welcome.source_qp == side.qp->qp_num);
    CHECK(welcome.destination_qp == forger.number);
    return fd;
  }
  std::uint64_t rejected() { return Context::of(side.context).listener.rejected(); }

  Side side;
  Forger forger;
};

struct Train {
  wire::Prefix prefix{};
  std::vector<std::byte> rest;

  void add(const void* bytes, std::size_t nbytes) {
    const auto* from = static_cast<const std::byte*>(bytes);
    rest.insert(rest.end(), from, from + nbytes);
  }
  void add(const wire::Packet& packet) {
    add(&packet, sizeof packet);
    ++prefix.packets;
  }
  void send(const UniqueFd& fd) {
    if (prefix.control_bytes == 0) {
      prefix.control_bytes = static_cast<std::uint16_t>(sizeof prefix + rest.size());
    }
    std::vector<std::byte> all(sizeof prefix);
    std::memcpy(all.data(), &prefix, sizeof prefix);
    all.insert(all.end(), rest.begin(), rest.end());
    say(fd, all.data(), all.size());
  }
};

wire::Packet packet_of(wire::Op op) {
  wire::Packet packet{};
  packet.op = op;
  return packet;
}

void expect_fatal(Stage& stage, UniqueFd& fd) {
  CHECK(is_closed(fd));
  CHECK(eventually([&] { return stage.side.state() == IBV_QPS_ERR; }));
  ibv_async_event event;
  REQUIRE(soft().get_async_event(stage.side.context, &event) == 0);
  soft().ack_async_event(&event);
  CHECK(event.event_type == IBV_EVENT_QP_FATAL);
}

}  // namespace

TEST_CASE("a forged hello fails unless every field is right") {
  Stage stage;
  const auto tampered = [&](auto change) {
    Hello hello = stage.forger.hello();
    change(hello);
    UniqueFd fd = dial(stage.side.address().gid);
    say(fd, &hello, sizeof hello);
    return is_closed(fd);
  };
  CHECK(tampered([](Hello& hello) { hello.magic[7] ^= 1; }));
  CHECK(tampered([](Hello& hello) { hello.source.raw[5] ^= 1; }));
  CHECK(tampered([](Hello& hello) { hello.destination.raw[9] ^= 1; }));
  CHECK(tampered([](Hello& hello) { hello.source_qp ^= 1; }));
  CHECK(tampered([](Hello& hello) { hello.destination_qp ^= 1; }));
  CHECK(tampered([](Hello& hello) { hello.source_psn ^= 1; }));
  CHECK(tampered([](Hello& hello) { hello.destination_psn ^= 1; }));
  CHECK(tampered([](Hello& hello) { hello.zero = 1; }));
  CHECK(stage.rejected() == 8);
  UniqueFd good = stage.enter();
  CHECK(stage.side.state() == IBV_QPS_RTS);
  // The place is taken now, even for one who knows everything.
  CHECK(tampered([](Hello&) {}));
}

TEST_CASE("a stranger who says nothing, little or too much is closed") {
  Stage stage;
  UniqueFd silent = dial(stage.side.address().gid);
  UniqueFd slow = dial(stage.side.address().gid);
  const Hello hello = stage.forger.hello();
  say(slow, &hello, 20);
  UniqueFd gone = dial(stage.side.address().gid);
  say(gone, &hello, 63);
  gone.reset();
  UniqueFd garbage = dial(stage.side.address().gid);
  std::vector<std::byte> noise(100000, std::byte{0x55});
  say(garbage, noise.data(), noise.size());
  CHECK(is_closed(garbage));
  CHECK(is_closed(silent));
  CHECK(is_closed(slow));
  CHECK(eventually([&] { return stage.rejected() == 4; }));
  stage.enter();
}

TEST_CASE("hellos that come in pieces, and before their queue pair is ready, are accepted") {
  Side side;
  Forger forger(side);
  REQUIRE(side.try_init() == 0);
  UniqueFd fd = dial(side.address().gid);
  const Hello hello = forger.hello();
  for (std::size_t i = 0; i < sizeof hello; ++i) {
    say(fd, reinterpret_cast<const std::byte*>(&hello) + i, 1);
  }
  REQUIRE(side.try_ready_to_receive(forger.address()) == 0);
  REQUIRE(side.try_ready_to_send() == 0);
  Hello welcome{};
  CHECK(::recv(fd.get(), &welcome, sizeof welcome, MSG_WAITALL) == sizeof welcome);
}

TEST_CASE("a thousand strangers do not keep the real peer out") {
  Stage stage;
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 500; ++i) crowd.push_back(dial(stage.side.address().gid));
  stage.enter();
}

TEST_CASE("trains that no correct peer sends are fatal") {
  const auto fatal = [](auto compose) {
    Stage stage;
    UniqueFd fd = stage.enter();
    Train train;
    compose(train, stage);
    train.send(fd);
    expect_fatal(stage, fd);
  };
  SUBCASE("control section too short") {
    fatal([](Train& train, Stage&) { train.prefix.control_bytes = 15; });
  }
  SUBCASE("control section too long") {
    fatal([](Train& train, Stage&) { train.prefix.control_bytes = wire::kMaxControl + 1; });
  }
  SUBCASE("more packets than allowed") {
    fatal([](Train& train, Stage&) { train.prefix.packets = wire::kMaxPackets + 1; });
  }
  SUBCASE("unknown flags") {
    fatal([](Train& train, Stage&) { train.prefix.flags = 2; });
  }
  SUBCASE("padding in use") {
    fatal([](Train& train, Stage&) { train.prefix.zero[1] = 1; });
  }
  SUBCASE("fewer packets than announced") {
    fatal([](Train& train, Stage&) { train.prefix.packets = 1; });
  }
  SUBCASE("bytes behind the last packet") {
    fatal([](Train& train, Stage&) { train.add("12345678", 8); });
  }
  SUBCASE("unknown operation") {
    fatal([](Train& train, Stage&) { train.add(packet_of(static_cast<wire::Op>(10))); });
  }
  SUBCASE("operation zero") {
    fatal([](Train& train, Stage&) { train.add(packet_of(static_cast<wire::Op>(0))); });
  }
  SUBCASE("an acknowledgement of what was never sent") {
    fatal([](Train& train, Stage&) { train.prefix.acknowledged = 1; });
  }
  SUBCASE("an acknowledgement that goes back") {
    fatal([](Train& train, Stage&) { train.prefix.acknowledged = 0xffffffff; });
  }
  SUBCASE("requests out of order") {
    fatal([](Train& train, Stage&) {
      train.prefix.first_request = 1;
      train.add(packet_of(wire::Op::write));
    });
  }
  SUBCASE("a restart that nobody asked for") {
    fatal([](Train& train, Stage&) {
      train.prefix.flags = wire::kRestart;
      train.add(packet_of(wire::Op::write));
    });
  }
  SUBCASE("a response without a request") {
    fatal([](Train& train, Stage&) { train.add(packet_of(wire::Op::read_response)); });
  }
  SUBCASE("an atomic response without a request") {
    fatal([](Train& train, Stage&) { train.add(packet_of(wire::Op::atomic_response)); });
  }
  SUBCASE("not ready without a request") {
    fatal([](Train& train, Stage&) { train.add(packet_of(wire::Op::not_ready)); });
  }
  SUBCASE("a refusal without a request") {
    fatal([](Train& train, Stage&) { train.add(packet_of(wire::Op::refused)); });
  }
  SUBCASE("inline payload on an operation that has none") {
    fatal([](Train& train, Stage&) {
      wire::Packet packet = packet_of(wire::Op::read);
      packet.flags = wire::kInline;
      train.add(packet);
    });
  }
  SUBCASE("inline payload that is too long") {
    fatal([](Train& train, Stage&) {
      wire::Packet packet = packet_of(wire::Op::write);
      packet.flags = wire::kInline;
      packet.nbytes = wire::kInlineBytes + 1;
      train.add(packet);
      std::byte payload[wire::kInlineBytes + 8] = {};
      train.add(payload, sizeof payload);
    });
  }
  SUBCASE("inline payload beyond the control section") {
    fatal([](Train& train, Stage&) {
      wire::Packet packet = packet_of(wire::Op::write);
      packet.flags = wire::kInline;
      packet.nbytes = 64;
      train.add(packet);
      train.add("12345678", 8);
    });
  }
  SUBCASE("an atomic without operands") {
    fatal([](Train& train, Stage&) { train.add(packet_of(wire::Op::fetch_add)); });
  }
  SUBCASE("a segment that is too long") {
    fatal([](Train& train, Stage&) {
      wire::Packet packet = packet_of(wire::Op::write);
      packet.nbytes = wire::kSegmentBytes + 1;
      train.add(packet);
    });
  }
}

TEST_CASE("responses that do not fit their request are fatal") {
  const auto fatal = [](auto compose) {
    Stage stage;
    UniqueFd fd = stage.enter();
    REQUIRE(stage.side.post_rdma(IBV_WR_RDMA_READ, 7, stage.side.sge(0, 64), 0, 0) == 0);
    std::byte request[sizeof(wire::Prefix) + sizeof(wire::Packet)];
    REQUIRE(::recv(fd.get(), request, sizeof request, MSG_WAITALL) == sizeof request);
    Train train;
    wire::Packet packet = packet_of(wire::Op::read_response);
    packet.nbytes = 64;
    compose(packet);
    train.add(packet);
    train.send(fd);
    const ibv_wc done = stage.side.wait();
    CHECK(done.wr_id == 7);
    CHECK(done.status == IBV_WC_FATAL_ERR);
    expect_fatal(stage, fd);
  };
  SUBCASE("too short") {
    fatal([](wire::Packet& packet) { packet.nbytes = 63; });
  }
  SUBCASE("too long") {
    fatal([](wire::Packet& packet) { packet.nbytes = 65; });
  }
  SUBCASE("of another request") {
    fatal([](wire::Packet& packet) { packet.sequence = 1; });
  }
  SUBCASE("of another kind") {
    fatal([](wire::Packet& packet) { packet.op = wire::Op::atomic_response; });
  }
}

TEST_CASE("a forged write cannot leave its region, nor reach one without its key") {
  Stage stage;
  UniqueFd fd = stage.enter();
  Train train;
  wire::Packet packet = packet_of(wire::Op::write);
  packet.key = stage.side.mr->rkey;
  packet.address = stage.side.at(stage.side.options.nbytes - 4);
  packet.nbytes = 8;
  train.add(packet);
  train.send(fd);
  CHECK(is_closed(fd));
  CHECK(eventually([&] { return stage.side.state() == IBV_QPS_ERR; }));
}

TEST_CASE("a stream that ends in the middle of a message ends the queue pair") {
  for (const std::size_t sent : {0u, 1u, 15u, 16u, 20u, 39u, 40u, 41u, 1000u}) {
    CAPTURE(sent);
    Stage stage;
    stage.side.receive(1, 0, 4096);
    UniqueFd fd = stage.enter();
    Train train;
    wire::Packet packet = packet_of(wire::Op::send);
    packet.nbytes = 4096;
    train.add(packet);
    train.prefix.control_bytes = sizeof(wire::Prefix) + sizeof packet;
    std::vector<std::byte> bytes(sizeof train.prefix);
    std::memcpy(bytes.data(), &train.prefix, sizeof train.prefix);
    bytes.insert(bytes.end(), train.rest.begin(), train.rest.end());
    bytes.resize(sizeof(wire::Prefix) + sizeof packet + 4096);
    say(fd, bytes.data(), sent);
    fd.reset();
    const ibv_wc flushed = stage.side.wait();
    CHECK(flushed.wr_id == 1);
    CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(stage.side.state() == IBV_QPS_ERR);
  }
}

TEST_CASE("random bytes, and good trains with a random bit turned, never crash") {
  std::mt19937 random(20261121);
  for (int round = 0; round < 150; ++round) {
    Stage stage;
    for (int i = 0; i < 4; ++i) stage.side.receive(1, 0, 4096);
    UniqueFd fd = stage.enter();
    Train train;
    for (int i = 0; i < 6; ++i) {
      wire::Packet packet = packet_of(i % 2 == 0 ? wire::Op::send : wire::Op::write);
      packet.key = stage.side.mr->rkey;
      packet.address = stage.side.at(0);
      packet.nbytes = 8;
      packet.flags = wire::kInline;
      train.add(packet);
      train.add("12345678", 8);
    }
    if (round % 3 == 0) {
      for (std::byte& byte : train.rest) byte = static_cast<std::byte>(random());
    } else {
      train.rest[random() % train.rest.size()] ^= static_cast<std::byte>(1u << random() % 8);
    }
    train.send(fd);
    ::shutdown(fd.get(), SHUT_WR);
    CHECK(is_closed(fd));
    CHECK(eventually([&] { return stage.side.state() == IBV_QPS_ERR; }));
  }
}
