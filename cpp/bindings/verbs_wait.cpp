#include <poll.h>

#include <cerrno>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "bindings/gil.hpp"
#include "bindings/verbs_objects.hpp"

namespace zerohop::bindings {

bool wait_readable(int fd, double timeout) {
  if (!(timeout >= 0)) throw py::value_error("timeout must be a number of seconds, 0 or more");
  const Deadline deadline = Deadline::after(Deadline::Seconds{timeout});
  for (;;) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    int ready = 0;
    int error_number = 0;
    {
      const GilReleased released;
      ready = ::poll(&entry, 1, deadline.remaining_ms());
      error_number = errno;
    }
    if (ready > 0) return true;
    if (ready < 0 && error_number != EINTR) {
      throw VerbsError(errno_message("poll failed", error_number), error_number);
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (deadline.passed()) return false;
  }
}

}  // namespace zerohop::bindings
