#include "base/buffer.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/host_memory.hpp"
#include "base/scarcity.hpp"

namespace zerohop {
namespace {

[[noreturn]] void fail(std::uint64_t nbytes, const char* call, int error_number) {
  throw_scarce<RegistrationError>(
      "cannot allocate " + std::to_string(nbytes) + " bytes of shared memory: " + call,
      error_number);
}

// fallocate would take every page of the machine before it fails, and the kernel would first kill
// other processes, because shared memory is charged to none. Small buffers skip the check.
void check_available(std::uint64_t nbytes) {
  constexpr std::uint64_t kSmall = 16 << 20;
  if (nbytes <= kSmall) return;
  const std::uint64_t available = available_memory();
  if (nbytes <= available) return;
  throw RegistrationError("cannot allocate " + std::to_string(nbytes) +
                              " bytes of shared memory: only " + std::to_string(available) +
                              " bytes are available to this process; ask for less",
                          ENOMEM);
}

// Allocates the pages now: a memfd that is only sized fails at the first touch of each page.
void reserve(int fd, std::uint64_t nbytes) {
  int result;
  do {
    result = ::fallocate(fd, 0, 0, static_cast<off_t>(nbytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) fail(nbytes, "fallocate", errno);
}

// Processes that receive the descriptor may map the pages without fear of SIGBUS: the size is
// final. Where the kernel has no seals, the descriptor is never shared. False: the seals were
// refused.
bool seal(int fd, Buffer::Others others) noexcept {
  constexpr int kFutureWrite = 0x10;      // F_SEAL_FUTURE_WRITE: Linux 5.1, glibc 2.31
  (void)::fchmod(fd, S_IRUSR | S_IWUSR);  // other users cannot open it anew through /proc
  const int more = others == Buffer::Others::only_read ? kFutureWrite : 0;
  return ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | more) == 0;
}

}  // namespace

Buffer::Buffer(std::uint64_t nbytes, Others others) : nbytes_(nbytes) {
  if (nbytes == 0) return;
  if (nbytes > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    fail(nbytes, "fallocate", EFBIG);
  }
  check_available(nbytes);
  fd_ = UniqueFd::open([] { return ::memfd_create("zerohop", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (!fd_) fail(nbytes, "memfd_create", errno);
  reserve(fd_.get(), nbytes);
  void* data = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (data == MAP_FAILED) fail(nbytes, "mmap", errno);
  // After our own mapping, which alone stays writable.
  if (!seal(fd_.get(), others) && others == Others::only_read) {
    const int error = errno;
    ::munmap(data, nbytes);
    throw RegistrationError(
        errno_message("the kernel cannot keep other processes from writing to shared pages "
                      "(F_SEAL_FUTURE_WRITE); Linux 5.1 can",
                      error),
        error);
  }
  data_ = static_cast<std::byte*>(data);
}

Buffer::Buffer(Buffer&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      nbytes_(std::exchange(other.nbytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(nbytes_, other.nbytes_);
  return *this;
}

Buffer::~Buffer() {
  // Close before unmapping: whichever comes last frees the pages, which takes long, and holding the
  // descriptor lock for that would block every other open.
  fd_.reset();
  if (data_ != nullptr) ::munmap(data_, nbytes_);
}

}  // namespace zerohop
