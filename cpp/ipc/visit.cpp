#include "ipc/visit.hpp"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "ipc/ledger.hpp"
#include "ipc/packet.hpp"

namespace zerohop::ipc {
namespace {

// How this process may reach the memory of `process`, tried on one word; empty when it may.
std::string try_process(int process, const Given& given) {
  if (process == 0) return "its process is in another PID namespace (a container of its own)";
  std::uint64_t word = 0;
  const iovec local{&word, sizeof word};
  const iovec remote{reinterpret_cast<void*>(given.probe_address), sizeof word};
  const ssize_t nbytes = ::process_vm_readv(process, &local, 1, &remote, 1, 0);
  if (nbytes == static_cast<ssize_t>(sizeof word) && word == given.probe) return {};
  if (nbytes < 0 && errno == EPERM) {
    return "the kernel forbids to reach memory of its process (EPERM): set "
           "kernel.yama.ptrace_scope to 0, give the container CAP_SYS_PTRACE, or allocate the "
           "array by Endpoint.empty()";
  }
  if (nbytes < 0) return errno_message("process_vm_readv failed", errno);
  return "another process answers to its number";
}

}  // namespace

std::shared_ptr<Visit> Visit::begin(const std::string& doorway, const Token& token,
                                    const Deadline& deadline) {
  UniqueFd socket = connect_local(doorway);
  if (!socket) {
    throw RouteUnavailable(
        errno == ECONNREFUSED
            ? "it is on another host, or in a network namespace (container) of its own"
            : errno_message("its Unix socket cannot be reached", errno),
        errno);
  }
  std::shared_ptr<Visit> visit(new Visit(std::move(socket)));
  visit->knock(token, deadline);
  return visit;
}

void Visit::knock(const Token& token, const Deadline& deadline) {
  if (!send_packet(socket_.get(), bytes_of(Knock{.token = token}))) {
    throw RouteUnavailable(errno_message("its Unix socket takes no packet", errno), errno);
  }
  for (std::uint32_t gift = 0; gift < kGifts; ++gift) {
    std::array<std::byte, sizeof(Given)> bytes;
    Packet packet = wait_packet(socket_.get(), bytes, deadline);
    if (packet.nbytes == 0) {
      throw RouteUnavailable("it ended the visit: it refuses the token, or has left");
    }
    const auto given = value_of<Given>(std::span(bytes).first(packet.nbytes));
    if (given.version != kDoorwayVersion || given.gift != Gift{gift} || !packet.fd) {
      throw ProtocolError("a process of this host gives at the doorway what no correct one does");
    }
    take(given, std::move(packet.fd));
  }
}

void Visit::take(const Given& given, UniqueFd descriptor) {
  const auto map = [&](bool writable) {
    return std::make_unique<const Mapping>(descriptor.get(), given.nbytes, writable);
  };
  switch (given.gift) {
    case Gift::ledger: ledger_ = map(false); break;
    case Gift::hazards: hazards_ = map(true); break;
    case Gift::board: board_ = map(true); break;
    case Gift::bell: bell_ = std::move(descriptor); break;
  }
  if (given.gift == Gift::ledger) {
    if (given.nbytes != Ledger::kNbytes) throw ProtocolError("a ledger of another size");
    find_process(given);
  }
  if (given.gift == Gift::hazards && given.nbytes != sizeof(Hazards)) {
    throw ProtocolError("a page of hazards of another size");
  }
}

void Visit::find_process(const Given& given) {
  ucred owner{};
  socklen_t nbytes = sizeof owner;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &owner, &nbytes) == 0) {
    process_ = owner.pid;
  }
  process_reason_ = try_process(process_, given);
}

std::shared_ptr<const Window> Visit::open(std::uint64_t key, Deadline::Seconds within) {
  const std::lock_guard lock(mutex_);
  const auto known = windows_.find(key);
  if (known != windows_.end()) return known->second;
  // What its owner has closed must not stay mapped: its pages would not be freed.
  std::erase_if(windows_, [this](const auto& entry) { return !stands(*entry.second); });
  auto window = ask(key, Deadline::after(within));
  if (window) windows_.emplace(key, window);
  return window;
}

std::shared_ptr<const Window> Visit::ask(std::uint64_t key, const Deadline& deadline) {
  std::array<std::byte, sizeof(Told)> bytes;
  // An answer that came after its question had timed out is not this one's.
  while (receive_packet(socket_.get(), bytes).value_or(Packet{}).nbytes > 0) {
  }
  if (!send_packet(socket_.get(), bytes_of(Ask{.key = key}))) {
    throw RouteUnavailable("its process has left");
  }
  Packet packet = wait_packet(socket_.get(), bytes, deadline);
  if (packet.nbytes == 0) throw RouteUnavailable("its process has left");
  const auto told = value_of<Told>(std::span(bytes).first(packet.nbytes));
  if (told.answer == Answer::unknown_key) return nullptr;
  if (told.answer != Answer::offered || told.slot >= Ledger::kSlots || told.begin > told.end) {
    throw Error("its process cannot give the memory away: it is out of descriptors (ulimit -n)");
  }
  auto window = std::make_shared<Window>();
  window->entry = {.slot = told.slot, .serial = told.serial};
  window->begin = told.begin;
  window->end = told.end;
  window->writable = told.writable != 0;
  if (told.has_pages != 0) {
    window->pages =
        std::make_unique<const Mapping>(packet.fd.get(), told.end - told.begin, window->writable);
  } else {
    window->trouble = process_reason_;
  }
  return window;
}

void Visit::ring() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
}

}  // namespace zerohop::ipc
