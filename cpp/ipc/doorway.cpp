#include "ipc/doorway.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/report.hpp"
#include "base/strangers.hpp"
#include "ipc/packet.hpp"

namespace zerohop::ipc {
namespace {

// Strangers may hold this many unfinished knocks open; one makes room for the next.
constexpr std::size_t kMaxStrangers = 64;
constexpr std::chrono::seconds kKnockFor{10};

std::string random_name() {
  std::array<std::uint32_t, 4> words{};
  fill_random(std::as_writable_bytes(std::span(words)));
  std::string name = "zerohop-";
  constexpr const char* kDigits = "0123456789abcdef";
  for (const std::uint32_t word : words) {
    for (int shift = 28; shift >= 0; shift -= 4) name += kDigits[word >> shift & 15];
  }
  return name;
}

std::uint64_t random_word() { return std::uint64_t{random_u32()} << 32 | random_u32(); }

UniqueFd make_epoll() {
  UniqueFd fd = UniqueFd::open([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (fd) return fd;
  throw Error(
      errno_message("epoll_create1 failed; raise the limit of open files (ulimit -n)", errno),
      errno);
}

bool watch(int epoll, int fd) noexcept {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Doorway::Doorway(std::shared_ptr<Exposures> exposures, const Buffer& board)
    : exposures_(std::move(exposures)),
      board_(board),
      name_(random_name()),
      probe_(random_word()),
      listener_(listen_local(name_)),
      epoll_(make_epoll()) {
  if (watch(epoll_.get(), listener_.get())) return;
  throw Error(errno_message("epoll_ctl failed", errno), errno);
}

Token Doorway::invite() {
  Token token;
  fill_random(token);
  const std::lock_guard lock(mutex_);
  invited_.insert(token);
  return token;
}

std::shared_ptr<Visitor> Doorway::dismiss(const Token& token) {
  if (!epoll_) return nullptr;  // a forked child: the visits are to its parent
  const std::lock_guard lock(mutex_);
  invited_.erase(token);
  return see_out(token);
}

std::shared_ptr<Visitor> Doorway::see_out(const Token& token) {
  const auto found =
      std::ranges::find_if(guests_, [&](const auto& entry) { return entry.second.token == token; });
  return found == guests_.end() ? nullptr : see_out(found->first);
}

// The visitor's socket stays open until it has closed its own end: Exposures looks at it.
std::shared_ptr<Visitor> Doorway::see_out(int fd) {
  const auto found = guests_.find(fd);
  if (found == guests_.end()) return nullptr;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  auto visitor = std::move(found->second.visitor);
  visitor->dismiss();
  guests_.erase(found);
  return visitor;
}

bool Doorway::serve() noexcept {
  bool rung = false;
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    try {
      if (fd == listener_.get()) {
        accept_all();
      } else if (strangers_.contains(fd)) {
        hear_stranger(fd);
      } else {
        rung = hear_guest(fd) || rung;
      }
    } catch (const std::exception& error) {
      strangers_.erase(fd);
      const std::lock_guard lock(mutex_);
      see_out(fd);
      report(std::string("the doorway for processes of this host: ") + error.what());
    }
  }
  return rung;
}

void Doorway::listen_again() noexcept {
  std::erase_if(strangers_, [now = Clock::now()](const auto& entry) {
    return now - entry.second.came > kKnockFor;
  });
  if (!listening_) listening_ = watch(epoll_.get(), listener_.get());
}

void Doorway::accept_all() {
  for (;;) {
    UniqueFd socket = UniqueFd::open([this] {
      return ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    });
    if (!socket) {
      // A connection that stays pending would wake this thread for ever: it waits for
      // listen_again().
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      const int error = errno;
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      listening_ = false;
      throw Error(errno_message("no further process is let in for now; raise the limit of open "
                                "files (ulimit -n)",
                                error),
                  error);
    }
    // What a guest is given it could use beyond its rights: one of this user could anyway, by
    // ptrace.
    if (other_end(socket.get()).uid != ::geteuid()) continue;
    if (strangers_.size() >= most_strangers(kMaxStrangers)) {
      strangers_.erase(pick_victim(strangers_.begin(), strangers_.end(), [](const auto& entry) {
        return std::optional(entry.second.came);
      }));
    }
    const int fd = socket.get();
    if (watch(epoll_.get(), fd)) {
      strangers_.emplace(fd, Stranger{.socket = std::move(socket), .came = Clock::now()});
    }
  }
}

// One packet, which must be a knock with a valid token; anything else ends the connection.
void Doorway::hear_stranger(int fd) {
  std::array<std::byte, sizeof(Knock)> bytes;
  const auto packet = receive_packet(fd, bytes);
  if (!packet) return;
  UniqueFd socket = std::move(strangers_.at(fd).socket);
  strangers_.erase(fd);
  if (packet->nbytes != sizeof(Knock)) return;
  const auto knock = value_of<Knock>(bytes);
  if (knock.version == kDoorwayVersion) let_in(std::move(socket), knock.token);
}

void Doorway::let_in(UniqueFd socket, const Token& token) {
  const std::lock_guard lock(mutex_);
  if (!invited_.contains(token)) return;
  const int fd = socket.get();
  auto visitor = std::make_shared<Visitor>(std::move(socket));
  exposures_->admit(visitor);  // before it learns of any exposure
  // Exposures keeps the socket, whose end would be ready for ever.
  const auto turn_away = [&] {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    visitor->dismiss();
  };
  try {
    const bool stays = give(*visitor, Gift::ledger, exposures_->ledger().get(), Ledger::kNbytes) &&
                       give(*visitor, Gift::hazards, visitor->hazards_fd(), sizeof(Hazards)) &&
                       give(*visitor, Gift::board, board_.fd(), board_.nbytes());
    if (!stays) return turn_away();
  } catch (const Error&) {
    turn_away();
    throw;
  }
  // Who knocks again had given up before it was answered.
  see_out(token);
  guests_.emplace(fd, Guest{.visitor = std::move(visitor), .token = token});
}

bool Doorway::give(const Visitor& visitor, Gift gift, int descriptor, std::uint64_t nbytes) const {
  const Given given{.gift = gift,
                    .nbytes = nbytes,
                    .probe_address = reinterpret_cast<std::uintptr_t>(&probe_),
                    .probe = probe_};
  // An empty socket has room for three packets.
  if (send_packet(visitor.socket(), bytes_of(given), descriptor)) return true;
  if (errno == EPIPE || errno == ECONNRESET) return false;
  throw Error(errno_message("a visitor cannot be given the shared pages", errno), errno);
}

// Whether it wants those woken who sleep.
bool Doorway::hear_guest(int fd) {
  std::shared_ptr<Visitor> visitor;
  {
    const std::lock_guard lock(mutex_);
    const auto found = guests_.find(fd);
    if (found == guests_.end()) return false;  // dismissed meanwhile
    visitor = found->second.visitor;
  }
  std::array<std::byte, sizeof(Ask)> bytes;
  const auto packet = receive_packet(fd, bytes);
  if (!packet) return false;
  if (packet->nbytes == sizeof(Ask)) {
    const auto ask = value_of<Ask>(std::span(bytes));
    if (ask.wish == Wish::wake) return true;
    if (ask.wish == Wish::memory) return answer(*visitor, ask), false;
  }
  const std::lock_guard lock(mutex_);
  see_out(fd);
  return false;
}

void Doorway::answer(const Visitor& visitor, const Ask& ask) const {
  Told told{.answer = Answer::unknown_key, .sequence = ask.sequence, .key = ask.key};
  std::optional<Offer> offer;
  try {
    offer = exposures_->find(ask.key, ask.address);
  } catch (const Error& error) {
    const bool scarce = error.code() == EMFILE || error.code() == ENFILE;
    told.answer = scarce ? Answer::out_of_descriptors : Answer::refused;
    std::string(error.what()).copy(told.reason.data(), told.reason.size() - 1);
  }
  if (offer) {
    told.answer = Answer::offered;
    told.slot = offer->entry.slot;
    told.serial = offer->entry.serial;
    told.begin = offer->range.begin;
    told.end = offer->range.end;
    told.writable = offer->range.writable;
    told.has_pages = static_cast<bool>(offer->pages);
  }
  int descriptor = offer ? offer->pages.get() : -1;
  if (offer && offer->parcel) {
    const Parcel& parcel = *offer->parcel;
    told.card_nbytes = static_cast<std::uint32_t>(parcel.card.size());
    std::ranges::copy(parcel.card, told.card.begin());
    told.chunk_begin = parcel.begin;
    told.chunk_end = parcel.end;
    descriptor = parcel.descriptor.get();
  }
  // A visitor that does not listen gets no answer.
  send_packet(visitor.socket(), bytes_of(told), descriptor);
}

}  // namespace zerohop::ipc
