// send and recv of GPU arrays: where the device copies itself (soft0), and where both endpoints
// stage.
#include <algorithm>

#include "base/error.hpp"
#include "staged_couple.hpp"

namespace zerohop::testing {
namespace {

constexpr std::int64_t kShort = 5000;  // travels inside a message
constexpr std::int64_t kLong = 100000;

struct Ends {
  bool from_gpu;
  bool to_gpu;
};
constexpr Ends kAll[] = {{true, true}, {true, false}, {false, true}};

Memory make(StagedCouple& both, engine::Endpoint& endpoint, bool on_gpu,
            const std::vector<std::int64_t>& shape) {
  return on_gpu ? both.gpu_array(endpoint, shape) : StagedCouple::host_array(endpoint, shape);
}

void check_message(StagedCouple& both, const Ends& ends, std::int64_t nbytes, bool early) {
  const Memory from = make(both, both.left, ends.from_gpu, {nbytes});
  const Memory to = make(both, both.right, ends.to_gpu, {nbytes});
  const Bytes bytes = counted(static_cast<std::size_t>(nbytes), 1 + (early ? 1 : 0));
  both.put(from, bytes);
  engine::TransferPtr received;
  if (early) received = both.to_left->receive(to, 4);
  const auto sent = both.to_right->send(from, 4);
  if (!early) received = both.to_left->receive(to, 4);
  StagedCouple::finish(received);
  CHECK(received->result() == static_cast<std::uint64_t>(nbytes));
  StagedCouple::finish(sent);
  CHECK(both.get(to) == bytes);
}

TEST_CASE("messages of every length come to and from GPUs") {
  for (const bool blind : {true, false}) {
    CAPTURE(blind);
    StagedCouple both(blind);
    for (const Ends ends : kAll) {
      for (const std::int64_t nbytes : {std::int64_t{0}, std::int64_t{1}, kShort, kLong}) {
        for (const bool early : {true, false}) check_message(both, ends, nbytes, early);
      }
    }
  }
}

TEST_CASE("columns are sent and received, and a short message fills the begin") {
  for (const bool blind : {true, false}) {
    CAPTURE(blind);
    StagedCouple both(blind);
    for (const std::int64_t rows : {std::int64_t{100}, std::int64_t{7000}}) {
      const Memory from = both.gpu_array(both.left, {rows, 8});
      const Memory to = both.gpu_array(both.right, {rows, 8});
      const Bytes bytes = counted(static_cast<std::size_t>(rows * 8), 9);
      both.put(from, bytes);
      const std::vector<Index> columns{Slice{}, Slice{2, 5}};
      const auto received = both.to_left->receive(to.slice(columns), 1);
      const auto sent = both.to_right->send(from.slice(columns), 1);
      StagedCouple::finish(received);
      StagedCouple::finish(sent);
      Bytes wanted(bytes.size(), std::byte{0xEE});
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i % 8 >= 2 && i % 8 < 5) wanted[i] = bytes[i];
      }
      CHECK(both.get(to) == wanted);
    }
    const Memory from = both.gpu_array(both.left, {300});
    const Memory to = both.gpu_array(both.right, {1000});
    const auto received = both.to_left->receive(to, 2);
    StagedCouple::finish(both.to_right->send(from, 2));
    StagedCouple::finish(received);
    CHECK(received->result() == 300);
  }
}

TEST_CASE("messages keep their order, whatever memory they come from") {
  for (const bool blind : {true, false}) {
    CAPTURE(blind);
    StagedCouple both(blind);
    std::vector<Memory> sources;
    std::vector<engine::TransferPtr> sent;
    for (unsigned i = 0; i < 24; ++i) {
      sources.push_back(make(both, both.left, i % 3 != 0, {i % 4 == 0 ? kLong : kShort}));
      both.put(sources.back(), counted(i % 4 == 0 ? kLong : kShort, i));
      sent.push_back(both.to_right->send(sources.back(), 5));
    }
    for (unsigned i = 0; i < 24; ++i) {
      const std::int64_t nbytes = i % 4 == 0 ? kLong : kShort;
      const Memory to = make(both, both.right, i % 2 == 0, {nbytes});
      StagedCouple::finish(both.to_left->receive(to, 5));
      CHECK(both.get(to) == counted(static_cast<std::size_t>(nbytes), i));
    }
    for (const auto& transfer : sent) StagedCouple::finish(transfer);
  }
}

TEST_CASE("the program's stream comes before a message is taken from its GPU") {
  StagedCouple both;
  const Memory from = both.gpu_array(both.left, {kShort});
  const Memory to = StagedCouple::host_array(both.right, {kShort});
  const Bytes bytes = counted(kShort, 6);
  both.cuda.copies.launch([&] { both.cuda.copies.overwrite(from.layout().address, bytes); });
  StagedCouple::finish(both.to_right->send(from, 0));
  StagedCouple::finish(both.to_left->receive(to, 0));
  CHECK(both.get(to) == bytes);
}

TEST_CASE("what the receiver's GPU cannot take is an error at both ends, and no other's") {
  StagedCouple both;
  const Memory from = StagedCouple::host_array(both.left, {kLong});
  const Memory to = both.gpu_array(both.right, {kLong});
  const auto sent = both.to_right->send(from, 3);
  both.cuda.copies.hangs = false;
  both.cuda.error = 700;
  both.cuda.calls = 0;
  both.cuda.fail_at = 60;  // after the creation of the ring
  const auto received = both.to_left->receive(to, 3);
  REQUIRE(received->wait(soon()));
  CHECK_THROWS_AS((void)received->result(), CudaError);
  REQUIRE(sent->wait(soon()));
  CHECK(contains(message_of<VerbsError>([&] { (void)sent->result(); }), "REM_OP_ERR"));
  both.cuda.fail_at = 0;
  check_message(both, {true, true}, kLong, true);
}

TEST_CASE("a message that is too long waits for a larger array") {
  StagedCouple both;
  const Memory from = both.gpu_array(both.left, {kLong});
  const Memory to = both.gpu_array(both.right, {kShort});
  const auto sent = both.to_right->send(from, 3);
  const auto receive_short = [&] { StagedCouple::finish(both.to_left->receive(to, 3)); };
  CHECK_THROWS_AS(receive_short(), std::invalid_argument);
  const Memory larger = both.gpu_array(both.right, {kLong});
  StagedCouple::finish(both.to_left->receive(larger, 3));
  StagedCouple::finish(sent);
}

}  // namespace
}  // namespace zerohop::testing
