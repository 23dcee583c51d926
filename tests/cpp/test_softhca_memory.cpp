// What can be registered with soft0, and how it is addressed.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soft_side.hpp"

using namespace zerohop::testing;

TEST_CASE("only memory that exists, and only with rights that it gives, can be registered") {
  Side side;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, 3 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  const auto error = [&](void* address, std::size_t nbytes, int access) {
    errno = 0;
    ibv_mr* mr = soft().reg_mr(side.pd, address, nbytes, access);
    if (mr == nullptr) return errno;
    CHECK(soft().dereg_mr(mr) == 0);
    return 0;
  };
  CHECK(error(memory, 3 * page, 0) == 0);
  CHECK(error(memory, 3 * page, IBV_ACCESS_LOCAL_WRITE) == EFAULT);
  CHECK(error(memory, 0, 0) == EINVAL);
  CHECK(error(memory, page, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(error(memory, page, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING) == 0);
  CHECK(error(memory, page, IBV_ACCESS_MW_BIND) == EOPNOTSUPP);
  ::munmap(static_cast<std::byte*>(memory) + page, page);
  CHECK(error(memory, 3 * page, 0) == EFAULT);
  ::munmap(memory, 3 * page);
}

TEST_CASE("a region may be addressed by a virtual address of its own, or of a mappable file") {
  Pair pair;
  std::byte memory[256] = {};
  ibv_mr* own = soft().reg_mr_iova2(pair.b.pd, memory, sizeof memory, 0x1000000,
                                    static_cast<unsigned>(pair.b.options.memory_access));
  REQUIRE(own != nullptr);
  pair.a.buffer[0] = std::byte{42};
  REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 1), 0x1000000 + 200, own->rkey) ==
          0);
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  CHECK(memory[200] == std::byte{42});
  CHECK(soft().dereg_mr(own) == 0);

  const int fd = ::memfd_create("dmabuf", MFD_CLOEXEC);
  REQUIRE(::ftruncate(fd, 20000) == 0);
  ibv_mr* file =
      soft().reg_dmabuf_mr(pair.b.pd, 5000, 15000, 0x50, fd, pair.b.options.memory_access);
  REQUIRE(file != nullptr);
  REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 1), 0x50 + 7000, file->rkey) == 0);
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  CHECK(soft().dereg_mr(file) == 0);
  std::byte seen{};
  CHECK(::pread(fd, &seen, 1, 12000) == 1);
  CHECK(seen == std::byte{42});
  ::close(fd);
  CHECK(soft().reg_dmabuf_mr(pair.b.pd, 0, 4096, 0, -1, 0) == nullptr);
  CHECK(errno == EBADF);
}
