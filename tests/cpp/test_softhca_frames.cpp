// Corrupt, damaged and truncated bytes on soft0 connections: nothing crashes, nothing gets in.
#include <doctest/doctest.h>

#include <random>

#include "forger.hpp"
#include "softhca/checked_frame.hpp"
#include "softhca/ordering.hpp"

using namespace zerohop::testing;
namespace softhca = zerohop::softhca;
using zerohop::UniqueFd;

namespace {

void expect_fatal(Stage& stage, UniqueFd& fd) {
  CHECK(is_closed(fd));
  CHECK(eventually([&] { return stage.side.state() == IBV_QPS_ERR; }));
  CHECK(stage.side.next_event() == IBV_EVENT_QP_FATAL);
}

constexpr std::uint32_t kSealed = 600;  // bytes of payload

// A checked frame that fills the first bytes of the side with the byte.
std::vector<std::byte> sealed_write(Stage& stage, std::uint32_t number, std::uint32_t request,
                                    char byte) {
  wire::Prefix prefix{};
  prefix.flags = wire::kChecked;
  prefix.packets = 1;
  prefix.first_request = request;
  wire::Packet packet = packet_of(wire::Op::write);
  packet.address = stage.side.at(0);
  packet.key = stage.side.mr->rkey;
  packet.nbytes = kSealed;
  constexpr std::size_t kControl = softhca::kCheckEnd + sizeof packet;
  prefix.control_bytes = kControl;
  std::vector<std::byte> bytes(kControl + kSealed, static_cast<std::byte>(byte));
  std::memcpy(bytes.data(), &prefix, sizeof prefix);
  std::memcpy(&bytes[softhca::kCheckEnd], &packet, sizeof packet);
  softhca::seal_frame(bytes, number);
  return bytes;
}

}  // namespace

TEST_CASE("frames that no correct peer sends are fatal") {
  struct Case {
    const char* name;
    void (*compose)(Frame&);
  };
  const Case cases[] = {
      {"control section too short", [](Frame& frame) { frame.prefix.control_bytes = 15; }},
      {"control section too long",
       [](Frame& frame) { frame.prefix.control_bytes = wire::kMaxControl + 1; }},
      {"more packets than allowed",
       [](Frame& frame) { frame.prefix.packets = wire::kMaxPackets + 1; }},
      {"unknown flags", [](Frame& frame) { frame.prefix.flags = 4; }},
      {"a checked frame without a check",
       [](Frame& frame) { frame.prefix.flags = wire::kChecked; }},
      {"more payload than a checked frame may have",
       [](Frame& frame) {
         frame.prefix.flags = wire::kChecked;
         const wire::Check check{
             .number = 0, .payload_bytes = wire::kCheckedPayload + 1, .crc = 0, .zero = 0};
         frame.add(check);
       }},
      {"padding in use", [](Frame& frame) { frame.prefix.zero[1] = 1; }},
      {"fewer packets than announced", [](Frame& frame) { frame.prefix.packets = 1; }},
      {"bytes behind the last packet", [](Frame& frame) { frame.add("12345678", 8); }},
      {"unknown operation", [](Frame& frame) { frame.add(packet_of(static_cast<wire::Op>(10))); }},
      {"operation zero", [](Frame& frame) { frame.add(packet_of(static_cast<wire::Op>(0))); }},
      {"an acknowledgement of what was never sent",
       [](Frame& frame) { frame.prefix.acknowledged = 1; }},
      {"an acknowledgement that goes back",
       [](Frame& frame) { frame.prefix.acknowledged = 0xffffffff; }},
      {"requests out of order",
       [](Frame& frame) {
         frame.prefix.first_request = 1;
         frame.add(packet_of(wire::Op::write));
       }},
      {"a restart that nobody asked for",
       [](Frame& frame) {
         frame.prefix.flags = wire::kRestart;
         frame.add(packet_of(wire::Op::write));
       }},
      {"a response without a request",
       [](Frame& frame) { frame.add(packet_of(wire::Op::read_response)); }},
      {"an atomic response without a request",
       [](Frame& frame) { frame.add(packet_of(wire::Op::atomic_response)); }},
      {"not ready without a request",
       [](Frame& frame) { frame.add(packet_of(wire::Op::not_ready)); }},
      {"a refusal without a request",
       [](Frame& frame) { frame.add(packet_of(wire::Op::refused)); }},
      {"inline payload on an operation that has none",
       [](Frame& frame) {
         wire::Packet packet = packet_of(wire::Op::read);
         packet.flags = wire::kInline;
         frame.add(packet);
       }},
      {"inline payload that is too long",
       [](Frame& frame) {
         wire::Packet packet = packet_of(wire::Op::write);
         packet.flags = wire::kInline;
         packet.nbytes = wire::kInlineBytes + 1;
         frame.add(packet);
         std::byte payload[wire::kInlineBytes + 8] = {};
         frame.add(payload, sizeof payload);
       }},
      {"inline payload beyond the control section",
       [](Frame& frame) {
         wire::Packet packet = packet_of(wire::Op::write);
         packet.flags = wire::kInline;
         packet.nbytes = 64;
         frame.add(packet);
         frame.add("12345678", 8);
       }},
      {"an atomic without operands",
       [](Frame& frame) { frame.add(packet_of(wire::Op::fetch_add)); }},
      {"a segment that is too long",
       [](Frame& frame) {
         wire::Packet packet = packet_of(wire::Op::write);
         packet.nbytes = wire::kSegmentBytes + 1;
         frame.add(packet);
       }},
  };
  for (const auto& [name, compose] : cases) {
    CAPTURE(std::string(name));
    Stage stage;
    UniqueFd fd = stage.enter();
    Frame frame;
    compose(frame);
    frame.send(fd);
    expect_fatal(stage, fd);
  }
}

TEST_CASE("of checked frames only the next one counts") {
  Stage stage;
  UniqueFd fd = stage.enter();
  const auto sealed = [&](std::uint32_t number, std::uint32_t request, char byte) {
    return sealed_write(stage, number, request, byte);
  };
  const auto holds = [&](std::uint32_t requests, char byte) {
    wire::Prefix reported{};
    REQUIRE(::recv(fd.get(), &reported, sizeof reported, MSG_WAITALL) == sizeof reported);
    softhca::ordering::after_receive();
    return reported.acknowledged == requests &&
           stage.side.buffer[0] == static_cast<std::byte>(byte) &&
           stage.side.buffer[kSealed - 1] == static_cast<std::byte>(byte);
  };
  const auto first = sealed(0, 0, 'a');
  auto damaged = sealed(1, 1, 'b');
  damaged[100] ^= std::byte{1};
  const auto second = sealed(1, 1, 'c');
  say(fd, first.data(), first.size());
  CHECK(holds(1, 'a'));
  say(fd, damaged.data(), damaged.size());
  say(fd, first.data(), first.size());  // again
  for (const std::byte byte : second) say(fd, &byte, 1);
  CHECK(holds(2, 'c'));
  const auto& counts = *softhca::Context::of(stage.side.context).faults.counts;
  CHECK(counts.of(softhca::Fault::corrupt_found) == 1);
  CHECK(counts.of(softhca::Fault::duplicate_found) == 1);
  const auto gap = sealed(3, 2, 'd');
  say(fd, gap.data(), gap.size());
  expect_fatal(stage, fd);
  CHECK(stage.side.buffer[0] == static_cast<std::byte>('c'));
}

TEST_CASE("responses that do not fit their request are fatal") {
  const std::pair<const char*, void (*)(wire::Packet&)> cases[] = {
      {"too short", [](wire::Packet& packet) { packet.nbytes = 63; }},
      {"too long", [](wire::Packet& packet) { packet.nbytes = 65; }},
      {"of another request", [](wire::Packet& packet) { packet.sequence = 1; }},
      {"of another kind", [](wire::Packet& packet) { packet.op = wire::Op::atomic_response; }},
  };
  for (const auto& [name, compose] : cases) {
    CAPTURE(std::string(name));
    Stage stage;
    UniqueFd fd = stage.enter();
    REQUIRE(stage.side.post_rdma(IBV_WR_RDMA_READ, 7, stage.side.sge(0, 64), 0, 0) == 0);
    std::byte request[sizeof(wire::Prefix) + sizeof(wire::Packet)];
    REQUIRE(::recv(fd.get(), request, sizeof request, MSG_WAITALL) == sizeof request);
    Frame frame;
    wire::Packet packet = packet_of(wire::Op::read_response);
    packet.nbytes = 64;
    compose(packet);
    frame.add(packet);
    frame.send(fd);
    const ibv_wc done = stage.side.wait();
    CHECK(done.wr_id == 7);
    CHECK(done.status == IBV_WC_FATAL_ERR);
    expect_fatal(stage, fd);
  }
}

TEST_CASE("a forged write cannot leave its region, nor reach one without its key") {
  Stage stage;
  UniqueFd fd = stage.enter();
  Frame frame;
  wire::Packet packet = packet_of(wire::Op::write);
  packet.key = stage.side.mr->rkey;
  packet.address = stage.side.at(stage.side.options.nbytes - 4);
  packet.nbytes = 8;
  frame.add(packet);
  frame.send(fd);
  CHECK(is_closed(fd));
  CHECK(eventually([&] { return stage.side.state() == IBV_QPS_ERR; }));
}

TEST_CASE("a stream that ends in the middle of a message ends the queue pair") {
  for (const std::size_t sent : {0u, 1u, 15u, 16u, 20u, 39u, 40u, 41u, 1000u}) {
    CAPTURE(sent);
    Stage stage;
    stage.side.receive(1, 0, 4096);
    UniqueFd fd = stage.enter();
    Frame frame;
    wire::Packet packet = packet_of(wire::Op::send);
    packet.nbytes = 4096;
    frame.add(packet);
    frame.prefix.control_bytes = sizeof(wire::Prefix) + sizeof packet;
    std::vector<std::byte> bytes(sizeof frame.prefix);
    std::memcpy(bytes.data(), &frame.prefix, sizeof frame.prefix);
    bytes.insert(bytes.end(), frame.rest.begin(), frame.rest.end());
    bytes.resize(sizeof(wire::Prefix) + sizeof packet + 4096);
    say(fd, bytes.data(), sent);
    fd.reset();
    const ibv_wc flushed = stage.side.wait();
    CHECK(flushed.wr_id == 1);
    CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(stage.side.state() == IBV_QPS_ERR);
  }
}

TEST_CASE("random bytes, and good frames with a random bit turned, never crash") {
  std::mt19937 random(20261121);
  for (int round = 0; round < 150; ++round) {
    Stage stage;
    for (int i = 0; i < 4; ++i) stage.side.receive(1, 0, 4096);
    UniqueFd fd = stage.enter();
    Frame frame;
    for (int i = 0; i < 6; ++i) {
      wire::Packet packet = packet_of(i % 2 == 0 ? wire::Op::send : wire::Op::write);
      packet.key = stage.side.mr->rkey;
      packet.address = stage.side.at(0);
      packet.nbytes = 8;
      packet.flags = wire::kInline;
      frame.add(packet);
      frame.add("12345678", 8);
    }
    if (round % 3 == 0) {
      for (std::byte& byte : frame.rest) byte = static_cast<std::byte>(random());
    } else {
      frame.rest[random() % frame.rest.size()] ^= static_cast<std::byte>(1u << random() % 8);
    }
    frame.send(fd);
    ::shutdown(fd.get(), SHUT_WR);
    CHECK(is_closed(fd));
    CHECK(eventually([&] { return stage.side.state() == IBV_QPS_ERR; }));
  }
}

namespace {

// Memory that the progress thread may be writing at this very moment, on purpose.
__attribute__((no_sanitize("thread"))) bool holds(const std::byte* at, std::byte value) {
  return *static_cast<const volatile std::byte*>(at) == value;
}

// The refusal of a write of `nbytes` whose memory is closed after `placed` bytes have arrived.
wire::Refusal refusal_of(std::uint32_t nbytes, std::uint32_t placed) {
  constexpr std::byte kMark{0x5a};
  Stage stage;
  UniqueFd fd = stage.enter();
  Frame frame;
  wire::Packet packet = packet_of(wire::Op::write);
  packet.key = stage.side.mr->rkey;
  packet.address = stage.side.at(0);
  packet.nbytes = nbytes;
  frame.add(packet);
  frame.send(fd);
  const std::vector<std::byte> payload(nbytes, kMark);
  say(fd, payload.data(), placed);
  if (placed > 0) {
    REQUIRE(eventually([&] { return holds(&stage.side.buffer[placed - 1], kMark); }));
  }
  stage.side.deregister();
  say(fd, &payload[placed], nbytes - placed);
  struct {
    wire::Prefix prefix;
    wire::Packet packet;
  } answer{};
  REQUIRE(::recv(fd.get(), &answer, sizeof answer, MSG_WAITALL) == sizeof answer);
  CHECK(answer.packet.op == wire::Op::refused);
  CHECK(answer.packet.sequence == 0);
  for (std::uint32_t i = placed; i < nbytes; ++i) REQUIRE(stage.side.buffer[i] == std::byte{0});
  return static_cast<wire::Refusal>(answer.packet.detail);
}

}  // namespace

TEST_CASE("an access error means that nothing of the packet was placed") {
  // Of a message of one packet: 4096 bytes is the path MTU.
  CHECK(refusal_of(4096, 0) == wire::Refusal::access);
  for (const std::uint32_t placed : {1u, 1000u, 4095u}) {
    CAPTURE(placed);
    CHECK(refusal_of(4096, placed) == wire::Refusal::operation);
  }
  // For a longer one an adapter, too, places packets before it refuses one.
  CHECK(refusal_of(12000, 500) == wire::Refusal::operation);
  CHECK(refusal_of(12000, 4096) == wire::Refusal::access);
  CHECK(refusal_of(12000, 9000) == wire::Refusal::access);
}
