// Memory regions, on soft0 and by libmlx5: memory of a dma-buf, and what is refused.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "soft_side.hpp"

namespace zerohop::testing {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// A memfd, in place of a dma-buf.
struct Buffer {
  Buffer() {
    REQUIRE(::ftruncate(fd, 2 * kPage) == 0);
    void* mapped = ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(mapped != MAP_FAILED);
    at = static_cast<std::byte*>(mapped);
  }
  ~Buffer() {
    ::munmap(at, 2 * kPage);
    ::close(fd);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  int fd = ::memfd_create("buffer", MFD_CLOEXEC);
  std::byte* at = nullptr;
};

TEST_CASE("memory of a dma-buf is written and read by the peer") {
  Pair pair;
  const Buffer buffer;
  constexpr std::uint64_t kIova = 0x7000'0000'0000;  // nothing is mapped there
  ibv_mr* mr = soft().reg_dmabuf_mr(pair.a.pd, kPage, kPage, kIova, buffer.fd, kAll);
  REQUIRE(mr != nullptr);
  std::memset(pair.b.buffer.get(), 7, 100);
  REQUIRE(pair.b.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.b.sge(0, 100), kIova + 50, mr->rkey) == 0);
  REQUIRE(pair.b.wait().status == IBV_WC_SUCCESS);
  CHECK(buffer.at[kPage + 49] == std::byte{0});
  CHECK(buffer.at[kPage + 50] == std::byte{7});
  CHECK(buffer.at[kPage + 149] == std::byte{7});
  CHECK(buffer.at[kPage + 150] == std::byte{0});
  buffer.at[2 * kPage - 1] = std::byte{9};
  const std::uint64_t last = kIova + kPage - 1;
  REQUIRE(pair.b.post_rdma(IBV_WR_RDMA_READ, 2, pair.b.sge(0, 1), last, mr->rkey) == 0);
  REQUIRE(pair.b.wait().status == IBV_WC_SUCCESS);
  CHECK(pair.b.buffer[0] == std::byte{9});
  REQUIRE(pair.b.post_rdma(IBV_WR_RDMA_READ, 3, pair.b.sge(0, 2), last, mr->rkey) == 0);
  CHECK(pair.b.wait().status == IBV_WC_REM_ACCESS_ERR);
  CHECK(soft().dereg_mr(mr) == 0);
}

TEST_CASE("memory that cannot be registered is refused") {
  Side side;
  const auto refused = [&](void* at, std::size_t nbytes, int access) {
    errno = 0;
    ibv_mr* mr = soft().reg_mr(side.pd, at, nbytes, access);
    if (mr != nullptr) soft().dereg_mr(mr);
    return mr == nullptr ? errno : 0;
  };
  void* none = ::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(none != MAP_FAILED);
  CHECK(refused(none, kPage, IBV_ACCESS_REMOTE_READ) == 0);
  CHECK(refused(none, kPage, kAll) == EFAULT);  // read-only
  REQUIRE(::munmap(none, kPage) == 0);
  CHECK(refused(none, kPage, IBV_ACCESS_REMOTE_READ) == EFAULT);
  CHECK(refused(side.buffer.get(), 0, kAll) == EINVAL);
  CHECK(refused(side.buffer.get(), 8, IBV_ACCESS_REMOTE_WRITE) == EINVAL);  // without local write
  errno = 0;
  CHECK(soft().reg_dmabuf_mr(side.pd, 0, kPage, 0, /*fd=*/-1, kAll) == nullptr);
  CHECK(errno == EBADF);
}

TEST_CASE("a region of a queue pair's domain is in use by nobody once it is deregistered") {
  Pair pair;
  const std::uint32_t key = pair.b.mr->rkey;
  const std::uint64_t place = pair.b.at(0);
  pair.b.deregister();
  REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 8), place, key) == 0);
  CHECK(pair.a.wait().status == IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace zerohop::testing
