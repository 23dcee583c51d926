// Pending connections at soft0: nobody without all credentials gets in, and no flood keeps the real
// peer out.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "forger.hpp"

using namespace zerohop::testing;
using zerohop::UniqueFd;
namespace softhca = zerohop::softhca;

TEST_CASE("a forged hello fails unless every field is right") {
  Stage stage;
  const auto tampered = [&](auto change) {
    softhca::Hello hello = stage.forger.hello();
    change(hello);
    UniqueFd fd = dial(stage.side.address().gid);
    say(fd, &hello, sizeof hello);
    return is_closed(fd);
  };
  CHECK(tampered([](softhca::Hello& hello) { hello.magic[7] ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.source.raw[5] ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.destination.raw[9] ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.source_qp ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.destination_qp ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.source_psn ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.destination_psn ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.zero = 1; }));
  CHECK(stage.rejected() == 8);
  UniqueFd good = stage.enter();
  CHECK(stage.side.state() == IBV_QPS_RTS);
  // The place is taken now, even for a connection with all credentials.
  CHECK(tampered([](softhca::Hello&) {}));
}

TEST_CASE("a stranger that sends nothing, little or too much is closed") {
  Stage stage;
  UniqueFd silent = dial(stage.side.address().gid);
  UniqueFd slow = dial(stage.side.address().gid);
  const softhca::Hello hello = stage.forger.hello();
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
  Forger forger(side.address());
  REQUIRE(side.try_init() == 0);
  UniqueFd fd = dial(side.address().gid);
  const softhca::Hello hello = forger.hello();
  for (std::size_t i = 0; i < sizeof hello; ++i) {
    say(fd, reinterpret_cast<const std::byte*>(&hello) + i, 1);
  }
  REQUIRE(side.try_ready_to_receive(forger.address()) == 0);
  REQUIRE(side.try_ready_to_send() == 0);
  softhca::Hello welcome{};
  CHECK(::recv(fd.get(), &welcome, sizeof welcome, MSG_WAITALL) == sizeof welcome);
}

TEST_CASE("a thousand strangers do not keep the real peer out") {
  Stage stage;
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 500; ++i) crowd.push_back(dial(stage.side.address().gid));
  stage.enter();
}

namespace {

// So many descriptors, of which unauthenticated connections get a quarter.
struct FewDescriptors {
  explicit FewDescriptors(rlim_t most) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit few{most, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before); }
  rlimit before{};
};

bool is_open(const UniqueFd& fd) {
  pollfd watched{fd.get(), POLLIN, 0};
  return ::poll(&watched, 1, 0) == 0;
}

}  // namespace

TEST_CASE("of too many strangers a random one is evicted, and one that greets is admitted") {
  Stage stage;
  const FewDescriptors few(800);
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 220; ++i) crowd.push_back(dial(stage.side.address().gid));
  CHECK(eventually([&] { return stage.rejected() == 20; }));
  // Not the oldest, as an attacker could want who aims at the place of one of them.
  CHECK(std::ranges::count_if(crowd, is_open) == 200);
  CHECK_FALSE(std::ranges::all_of(crowd.begin() + 20, crowd.end(), is_open));
  stage.enter();
}
