#include "driver/verbs_call.hpp"

#include <cstdio>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "base/report.hpp"
#include "base/scarcity.hpp"

namespace zerohop::driver {
namespace {

// What to do about an errno of a verbs call. Empty when errno's own text says it all.
std::string verbs_remedy(int error_number) {
  switch (error_number) {
    case ENOMEM:
      return "the device is out of this resource, the queue asks for too much, or the limit of "
             "locked memory (" +
             locked_memory_limit() + ") is reached: ask for less, or raise `ulimit -l`";
    case EINVAL: return "an argument is outside what the device or its state allows";
    case EACCES:
    case EPERM:
      return "give this user read and write access to /dev/infiniband/uverbs* (in a container, "
             "pass the device through)";
    case ENOENT:
      return "its file /dev/infiniband/uverbs* is not there: in a container, pass the device "
             "through "
             "(docker: --device=/dev/infiniband)";
    case ENODEV:
    case ENXIO: return "the device is gone or its driver is not loaded: see `rdma link show`";
    case ENODATA: return "the table has no entry at that index: choose another gid_index";
    case ENOSYS:
      return "this kernel has no RDMA support: load ib_uverbs and the adapter's driver, or use the "
             "device soft0";
    case EOPNOTSUPP:
    case EPROTONOSUPPORT: return "the adapter, its driver or this kernel does not offer it";
    case EBUSY: return "something that depends on it is still alive: destroy that first";
    case EFAULT: return "the address range is not mapped in this process";
    case ETIMEDOUT:
      return "the remote GID did not answer: check the address, the link and the route, then retry";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return "there is no route to the remote GID: choose another device or gid_index";
    case EIO: return "the device or its firmware failed: see `dmesg`, then close and reopen it";
    case EMFILE:
    case ENFILE: return remedy_of(error_number);
    case EAGAIN:
      return "a resource is temporarily short: retry; if that persists, " + remedy_of(EAGAIN);
    default: return {};
  }
}

}  // namespace

int errno_of(int result) noexcept {
  if (result == -1) return errno;
  return result < 0 ? -result : result;
}

void throw_verbs_error(std::string_view what, int error_number) {
  std::string message = errno_message(std::string(what), error_number);
  if (const std::string advice = verbs_remedy(error_number); !advice.empty()) {
    message.append("; ").append(advice);
  }
  throw VerbsError(message, error_number);
}

void check_errno(int result, std::string_view what) {
  if (result != 0) throw_verbs_error(what, errno_of(result));
}

void check_minus_one(int result, std::string_view what) {
  if (result < 0) throw_verbs_error(what, errno);
}

void report_errno(int result, std::string_view what) noexcept {
  if (result == 0) return;
  // On the stack: a destructor must not allocate, as memory may be what ran out.
  char text[160];
  const int error_number = errno_of(result);
  std::snprintf(text, sizeof text, "%.*s failed with errno %d (%s); its resource is leaked",
                static_cast<int>(what.size()), what.data(), error_number,
                ::strerrordesc_np(error_number));
  report(text);
}

}  // namespace zerohop::driver
