#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/buffer.hpp"
#include "base/error.hpp"

using zerohop::Buffer;

TEST_CASE("a buffer is zeroed, page-aligned, writable and not inherited by other programs") {
  const Buffer buffer(10'000);
  CHECK(buffer.address() % static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) == 0);
  CHECK(std::all_of(buffer.data(), buffer.data() + buffer.nbytes(),
                    [](std::byte value) { return value == std::byte{0}; }));
  buffer.data()[9'999] = std::byte{7};
  CHECK((::fcntl(buffer.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a second mapping of the descriptor sees the same bytes") {
  const Buffer buffer(4096);
  void* other = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, buffer.fd(), 0);
  REQUIRE(other != MAP_FAILED);
  buffer.data()[17] = std::byte{42};
  CHECK(static_cast<std::byte*>(other)[17] == std::byte{42});
  ::munmap(other, 4096);
}

TEST_CASE("a buffer of no bytes maps nothing") {
  const Buffer buffer(0);
  CHECK(buffer.data() == nullptr);
  CHECK(buffer.nbytes() == 0);
  CHECK(buffer.fd() == -1);
}

TEST_CASE("a buffer moves with its bytes") {
  Buffer first(4096);
  first.data()[0] = std::byte{1};
  const int fd = first.fd();
  Buffer second(std::move(first));
  CHECK(first.data() == nullptr);
  Buffer third(0);
  third = std::move(second);
  CHECK(third.data()[0] == std::byte{1});
  CHECK(third.fd() == fd);
}

TEST_CASE("what cannot be allocated is an error at once, with errno's number") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit tight{1 << 20, before.rlim_max};
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);  // as Python does
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  int code = 0;
  try {
    const Buffer buffer(2 << 20);
  } catch (const zerohop::RegistrationError& error) {
    code = error.code();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(code == EFBIG);
  CHECK_THROWS_AS(Buffer(~std::uint64_t{0}), zerohop::RegistrationError);
}
