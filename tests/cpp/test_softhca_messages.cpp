// The packets of a message on soft0: all of one operation, and no more bytes than allowed.
#include <doctest/doctest.h>

#include <initializer_list>
#include <utility>

#include "forger.hpp"

using namespace zerohop::testing;
namespace softhca = zerohop::softhca;
using wire::Op;
using zerohop::UniqueFd;

namespace {

constexpr std::uint8_t kMore = wire::kMore;

// With 8 bytes of payload, or with operands.
void add(Frame& frame, const Stage& stage, Op op, std::uint8_t flags = 0) {
  wire::Packet packet = packet_of(op);
  packet.key = stage.side.mr->rkey;
  packet.address = stage.side.at(0);
  const bool atomic = op == Op::fetch_add;
  const bool query = atomic || op == Op::read;
  if (!atomic) packet.nbytes = 8;
  packet.flags = query ? flags : static_cast<std::uint8_t>(flags | wire::kInline);
  frame.add(packet);
  if (!query) frame.add("12345678", 8);
  if (atomic) frame.add("0123456789abcde", sizeof(wire::Operands));
}

// The responder's answer then.
void is_refused(const Stage& stage, const UniqueFd& fd, Frame& frame) {
  frame.send(fd);
  struct {
    wire::Prefix prefix;
    wire::Packet packet;
  } answer{};
  REQUIRE(::recv(fd.get(), &answer, sizeof answer, MSG_WAITALL) == sizeof answer);
  CHECK(answer.packet.op == Op::refused);
  CHECK(answer.packet.detail == static_cast<std::uint16_t>(wire::Refusal::invalid_request));
  CHECK(answer.packet.sequence == 0);
  CHECK(eventually([&] { return stage.side.state() == IBV_QPS_ERR; }));
}

void is_refused(Op first, Op second, std::uint8_t flags = 0) {
  Stage stage;
  stage.side.receive(7, 0, 64);
  const UniqueFd fd = stage.enter();
  Frame frame;
  add(frame, stage, first, kMore);
  add(frame, stage, second, flags);
  is_refused(stage, fd, frame);
  const ibv_wc flushed = stage.side.wait();
  CHECK(flushed.wr_id == 7);
  CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
}

}  // namespace

TEST_CASE("a message of several operations is an invalid request") {
  is_refused(Op::write, Op::send);  // the receive would have reported 16 bytes, and got 8
  is_refused(Op::send, Op::write, wire::kImmediate);
  is_refused(Op::send, Op::write);
  is_refused(Op::write, Op::read);
  is_refused(Op::send, Op::fetch_add);
}

TEST_CASE("an empty first packet counts, too") {
  Stage stage;
  stage.side.receive(7, 0, 64);
  const UniqueFd fd = stage.enter();
  Frame frame;
  wire::Packet empty = packet_of(Op::write);
  empty.flags = kMore;
  frame.add(empty);
  add(frame, stage, Op::send);
  is_refused(stage, fd, frame);
}

TEST_CASE("messages of one operation each follow each other in a frame") {
  Stage stage;
  stage.side.receive(7, 100, 64);
  const UniqueFd fd = stage.enter();
  Frame frame;
  for (const Op op : {Op::write, Op::send}) {
    add(frame, stage, op, kMore);
    add(frame, stage, op);
  }
  frame.send(fd);
  const ibv_wc received = stage.side.wait();
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.wr_id == 7);
  CHECK(received.byte_len == 16);
}

TEST_CASE("a message has no more bytes than the port allows") {
  Stage stage({.nbytes = wire::kSegmentBytes});
  const UniqueFd fd = stage.enter();
  const std::vector<std::byte> payload(wire::kSegmentBytes);
  std::uint64_t nbytes = 0;
  while (nbytes < wire::kMaxMessage) {
    Frame frame;
    wire::Packet packet = packet_of(Op::write);
    packet.flags = kMore;
    packet.nbytes = wire::kSegmentBytes;
    packet.key = stage.side.mr->rkey;
    packet.address = stage.side.at(0);
    frame.add(packet);
    frame.send(fd);
    say(fd, payload.data(), payload.size());
    nbytes += payload.size();
  }
  CHECK(stage.side.state() == IBV_QPS_RTS);
  Frame frame;
  add(frame, stage, Op::write);
  is_refused(stage, fd, frame);
}
