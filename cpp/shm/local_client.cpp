#include "shm/local_client.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string_view>

namespace zerohop::shm {
namespace {

// By its line in /proc (proc_pid_stat(5)); false if there is none.
bool is_stopped(pid_t process) {
  const std::string path = "/proc/" + std::to_string(process) + "/stat";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 512> text;
  const auto nbytes = file ? ::read(file.get(), text.data(), text.size()) : 0;
  const std::string_view line(text.data(), nbytes > 0 ? static_cast<std::size_t>(nbytes) : 0);
  const auto name_end = line.rfind(") ");  // a name may contain anything
  if (name_end == std::string_view::npos || name_end + 2 >= line.size()) return false;
  const char state = line[name_end + 2];
  return state == 'T' || state == 't';  // by a signal, by a debugger
}

}  // namespace

bool LocalClient::stays_stopped() const noexcept {
  ucred peer{};
  socklen_t nbytes = sizeof peer;
  const bool known = ::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &nbytes) == 0;
  return known && peer.pid > 0 && hazards().dismissed() && is_stopped(peer.pid);
}

}  // namespace zerohop::shm
