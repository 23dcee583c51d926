#include "base/scarcity.hpp"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text_file.hpp"

namespace zerohop {
namespace {

// Empty: no limit.
std::optional<std::uint64_t> limit_of(__rlimit_resource_t resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::string limit_text(std::optional<std::uint64_t> limit) {
  return limit ? std::to_string(*limit) : "unlimited";
}

std::uint64_t count_mappings() {
  const TextFile maps = open_text("/proc/self/maps");
  std::array<char, 4096> part{};
  std::uint64_t lines = 0;
  while (maps) {
    const std::size_t nbytes = std::fread(part.data(), 1, part.size(), maps.get());
    if (nbytes == 0) break;
    lines += static_cast<std::uint64_t>(std::count(part.data(), part.data() + nbytes, '\n'));
  }
  return lines;
}

// Empty: the limit is not reached.
std::string remedy_of_mappings() {
  const auto most = number_in("/proc/sys/vm/max_map_count");
  const std::uint64_t used = count_mappings();
  constexpr std::uint64_t kNearly =
      16;  // a thread, or pages with their own protection, takes several
  if (!most || used + kNearly < *most) return {};
  return "this process has " + std::to_string(used) + " memory mappings of " +
         std::to_string(*most) +
         " (vm.max_map_count): raise it, `sysctl -w vm.max_map_count=" + std::to_string(*most * 4) +
         "`, or unmap some";
}

std::string remedy_of_memory() {
  if (std::string mappings = remedy_of_mappings(); !mappings.empty()) return mappings;
  if (const auto bytes = limit_of(RLIMIT_AS)) {
    return "this process may map " + std::to_string(*bytes) +
           " bytes (RLIMIT_AS): raise it, `ulimit -v`, or free memory";
  }
  return "free memory, of the host or of this container's limit";
}

// For a thread, whose stack is a mapping (pthread_create(3) returns EAGAIN for either).
std::string remedy_of_threads() {
  if (std::string mappings = remedy_of_mappings(); !mappings.empty()) return mappings;
  return "this user may have " + limit_text(limit_of(RLIMIT_NPROC)) +
         " processes and threads (RLIMIT_NPROC), a container as many as its pids.max says: raise "
         "it, `ulimit -u`";
}

}  // namespace

std::string remedy_of(int error_number) {
  switch (error_number) {
    case EMFILE:
      return "this process may have " + limit_text(limit_of(RLIMIT_NOFILE)) +
             " open files (RLIMIT_NOFILE): raise it, `ulimit -n`, or close what is not used";
    case ENFILE:
      return "the host has as many open files as it may (fs.file-max): raise it, `sysctl -w "
             "fs.file-max=...`";
    case ENOMEM: return remedy_of_memory();
    case EAGAIN: return remedy_of_threads();
    case EFBIG:
      return "files of this process, which shared memory counts as, may have " +
             limit_text(limit_of(RLIMIT_FSIZE)) +
             " bytes (RLIMIT_FSIZE): ask for less, or raise it, `ulimit -f`";
    case ENOSPC:
      return "the memory, or the kernel's table for it, is full: free some, or raise its limit (of "
             "epoll fs.epoll.max_user_watches)";
    default: return {};
  }
}

std::string locked_memory_limit() {
  const auto limit = limit_of(RLIMIT_MEMLOCK);
  return limit ? std::to_string(*limit) + " bytes" : "none";
}

std::string scarcity_message(const std::string& what, int error_number) {
  const std::string remedy = remedy_of(error_number);
  return errno_message(what, error_number) + (remedy.empty() ? "" : "; ") + remedy;
}

namespace {

// glibc ends a process that has no memory for a thread's first use of a library's thread-local
// data. So touch this library's and the C++ library's exception data at once.
void make_thread_local_data() noexcept {
  (void)std::uncaught_exceptions();
  try {
    (void)random_u32();
  } catch (const Error&) {  // no random bytes; the next call reports it
  }
}

}  // namespace

std::thread start_thread(const char* name, std::function<void()> work) {
  try {
    return std::thread([name = std::string(name), work = std::move(work)] {
      ::pthread_setname_np(::pthread_self(), name.c_str());
      make_thread_local_data();
      work();
    });
  } catch (const std::system_error& error) {
    throw_scarce(std::string("the thread ") + name + " cannot be started", error.code().value());
  }
}

}  // namespace zerohop
