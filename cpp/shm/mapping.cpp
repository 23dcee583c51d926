#include "shm/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/scarcity.hpp"

namespace zerohop::shm {

Mapping::Mapping(int fd, std::uint64_t nbytes, bool writable) : nbytes_(nbytes) {
  struct stat facts{};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &facts) != 0 ||
      static_cast<std::uint64_t>(facts.st_size) < nbytes) {
    throw Error(
        "memory shared by a process of this host is not a sealed memfd of the announced size");
  }
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = ::mmap(nullptr, nbytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    throw_scarce("memory of a process of this host cannot be mapped", errno);
  }
  data_ = static_cast<std::byte*>(data);
}

Mapping::~Mapping() { ::munmap(data_, nbytes_); }

}  // namespace zerohop::shm
