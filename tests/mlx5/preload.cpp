// What LD_PRELOAD puts in front of the C library: calls on files of the simulation are answered
// here, paths to them lead into its tree, and everything else passes.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "files.hpp"
#include "tree.hpp"

namespace sim = zerohop::mlx5sim;

#define EXPORTED extern "C" __attribute__((visibility("default")))

// The functions with checks, which programs call that were built with _FORTIFY_SOURCE.
extern "C" {
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int folder, const char* path, int flags);
int __openat64_2(int folder, const char* path, int flags);
ssize_t __read_chk(int fd, void* to, size_t nbytes, size_t room);
char* __realpath_chk(const char* path, char* to, size_t room);
}

namespace {

// Which function of that name comes behind this library.
#define NEXT(name) \
  static const auto next = reinterpret_cast<decltype(&::name)>(::dlsym(RTLD_NEXT, #name))

class Path {
 public:
  explicit Path(const char* path) noexcept : path_(sim::tree::redirect(path, place_)) {}
  operator const char*() const noexcept { return path_; }  // for the functions behind these

 private:
  char place_[sim::tree::kMostPath];
  const char* path_;
};

// Of a file that was opened as `path`: `fd`, or -1 with errno.
int opened(int fd, const char* path) noexcept {
  const int device = fd >= 0 ? sim::tree::device_of(path) : -1;
  if (device < 0) return fd;
  if (const int error = sim::files::add_device(fd, device); error != 0) {
    ::close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

mode_t mode_of(int flags, va_list rest) noexcept {
  const bool given = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return given ? va_arg(rest, mode_t) : 0;
}

}  // namespace

#define OPEN(name)                                      \
  EXPORTED int name(const char* path, int flags, ...) { \
    NEXT(name);                                         \
    va_list rest;                                       \
    va_start(rest, flags);                              \
    const mode_t mode = mode_of(flags, rest);           \
    va_end(rest);                                       \
    return opened(next(Path(path), flags, mode), path); \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                \
  EXPORTED int name(int folder, const char* path, int flags, ...) { \
    NEXT(name);                                                     \
    va_list rest;                                                   \
    va_start(rest, flags);                                          \
    const mode_t mode = mode_of(flags, rest);                       \
    va_end(rest);                                                   \
    return opened(next(folder, Path(path), flags, mode), path);     \
  }
OPENAT(openat)
OPENAT(openat64)

EXPORTED int __open_2(const char* path, int flags) {
  NEXT(__open_2);
  return opened(next(Path(path), flags), path);
}
EXPORTED int __open64_2(const char* path, int flags) {
  NEXT(__open64_2);
  return opened(next(Path(path), flags), path);
}
EXPORTED int __openat_2(int folder, const char* path, int flags) {
  NEXT(__openat_2);
  return opened(next(folder, Path(path), flags), path);
}
EXPORTED int __openat64_2(int folder, const char* path, int flags) {
  NEXT(__openat64_2);
  return opened(next(folder, Path(path), flags), path);
}

// Other functions that take a path.

#define WITH_PATH(result, name, parameters, arguments) \
  EXPORTED result name parameters {                    \
    NEXT(name);                                        \
    return next arguments;                             \
  }
using Stat = struct stat;
using Stat64 = struct stat64;
using Statx = struct statx;
WITH_PATH(FILE*, fopen, (const char* path, const char* mode), (Path(path), mode))
WITH_PATH(FILE*, fopen64, (const char* path, const char* mode), (Path(path), mode))
WITH_PATH(DIR*, opendir, (const char* path), (Path(path)))
WITH_PATH(int, stat, (const char* path, Stat* to), (Path(path), to))
WITH_PATH(int, stat64, (const char* path, Stat64* to), (Path(path), to))
WITH_PATH(int, lstat, (const char* path, Stat* to), (Path(path), to))
WITH_PATH(int, lstat64, (const char* path, Stat64* to), (Path(path), to))
WITH_PATH(int, fstatat, (int folder, const char* path, Stat* to, int flags),
          (folder, Path(path), to, flags))
WITH_PATH(int, fstatat64, (int folder, const char* path, Stat64* to, int flags),
          (folder, Path(path), to, flags))
WITH_PATH(int, statx, (int folder, const char* path, int flags, unsigned mask, Statx* to),
          (folder, Path(path), flags, mask, to))
WITH_PATH(int, access, (const char* path, int mode), (Path(path), mode))
WITH_PATH(int, faccessat, (int folder, const char* path, int mode, int flags),
          (folder, Path(path), mode, flags))
WITH_PATH(ssize_t, readlink, (const char* path, char* to, size_t room), (Path(path), to, room))
WITH_PATH(ssize_t, readlinkat, (int folder, const char* path, char* to, size_t room),
          (folder, Path(path), to, room))
WITH_PATH(char*, realpath, (const char* path, char* to), (Path(path), to))
WITH_PATH(char*, __realpath_chk, (const char* path, char* to, size_t room), (Path(path), to, room))

// Calls on descriptors.

EXPORTED ssize_t read(int fd, void* to, size_t nbytes) {
  NEXT(read);
  const auto events = sim::files::events(fd);
  return events ? events->read(to, nbytes) : next(fd, to, nbytes);
}

EXPORTED ssize_t __read_chk(int fd, void* to, size_t nbytes, size_t room) {
  NEXT(__read_chk);
  const auto events = sim::files::events(fd);
  return events && nbytes <= room ? events->read(to, nbytes) : next(fd, to, nbytes, room);
}

EXPORTED int close(int fd) {
  NEXT(close);
  return sim::files::is_one(fd) && sim::files::forget(fd) ? 0 : next(fd);
}

EXPORTED int ioctl(int fd, unsigned long request, ...) {
  NEXT(ioctl);
  va_list rest;
  va_start(rest, request);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  const auto device = sim::files::device(fd);
  if (!device && !sim::files::is_one(fd)) return next(fd, request, argument);
  int error = device ? ENOTTY : EIO;  // EIO: one of the process that forked this one
  if (device && request == RDMA_VERBS_IOCTL) {
    error = device->command(*static_cast<ib_uverbs_ioctl_hdr*>(argument));
  }
  if (error == 0) return 0;
  errno = error;
  return -1;
}

#define MMAP(name)                                                                              \
  EXPORTED void* name(void* at, size_t nbytes, int protection, int flags, int fd, off_t from) { \
    NEXT(name);                                                                                 \
    const auto device = sim::files::device(fd);                                                 \
    return device ? device->map(at, nbytes, protection, from)                                   \
                  : next(at, nbytes, protection, flags, fd, from);                              \
  }
MMAP(mmap)
MMAP(mmap64)

// The kernel's own list of RDMA devices has no simulated ones: libibverbs then reads /sys.
EXPORTED int socket(int domain, int type, int protocol) {
  NEXT(socket);
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA && !sim::tree::root().empty()) {
    errno = EPROTONOSUPPORT;
    return -1;
  }
  return next(domain, type, protocol);
}
