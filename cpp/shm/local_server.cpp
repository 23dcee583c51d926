#include "shm/local_server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/report.hpp"
#include "base/scarcity.hpp"
#include "shm/packet.hpp"

namespace zerohop::shm {
namespace {

constexpr Acceptor::Limits kLimits{
    .at_once = 64, .most_pending = 64, .patience = std::chrono::seconds(10)};
constexpr int kMostQuestions = 64;  // pending driver questions per client

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
  throw_scarce("epoll_create1 failed", errno);
}

bool watch(int epoll, int fd) noexcept {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

void give_answer(const Exposures& exposures, const LocalClient& client, const Ask& ask) {
  Reply reply{.answer = Answer::unknown_key, .sequence = ask.sequence, .key = ask.key};
  std::optional<Offer> offer;
  try {
    offer = exposures.find(ask.key, ask.address);
  } catch (const Error& error) {
    const bool scarce = error.code() == EMFILE || error.code() == ENFILE;
    reply.answer = scarce ? Answer::out_of_descriptors : Answer::refused;
    std::string(error.what()).copy(reply.reason.data(), reply.reason.size() - 1);
  }
  if (offer) {
    reply.answer = Answer::offered;
    reply.slot = offer->entry.slot;
    reply.serial = offer->entry.serial;
    reply.begin = offer->range.begin;
    reply.end = offer->range.end;
    reply.writable = offer->range.writable;
    reply.has_pages = static_cast<bool>(offer->pages);
  }
  int descriptor = offer ? offer->pages.get() : -1;
  if (offer && offer->exported) {
    const ExportedChunk& exported = *offer->exported;
    reply.handle_nbytes = static_cast<std::uint32_t>(exported.handle.size());
    std::ranges::copy(exported.handle, reply.handle.begin());
    reply.chunk_begin = exported.begin;
    reply.chunk_end = exported.end;
    descriptor = exported.descriptor.get();
  }
  // A client that does not read its socket gets no answer.
  send_packet(client.socket(), bytes_of(reply), descriptor);
}

void refuse(const LocalClient& client, const Ask& ask, std::string_view reason) {
  Reply reply{.answer = Answer::refused, .sequence = ask.sequence, .key = ask.key};
  reason.copy(reply.reason.data(), reply.reason.size() - 1);
  send_packet(client.socket(), bytes_of(reply));
}

}  // namespace

LocalServer::LocalServer(std::shared_ptr<Exposures> exposures, const Buffer& board,
                         std::shared_ptr<Executor> drivers)
    : exposures_(std::move(exposures)),
      board_(board),
      name_(random_name()),
      probe_(random_word()),
      drivers_(std::move(drivers)),
      acceptor_(listen_local(name_), kLimits, *this),
      epoll_(make_epoll()) {
  if (watch(epoll_.get(), acceptor_.fd())) return;
  throw_scarce("epoll_ctl failed", errno);
}

Token LocalServer::invite() {
  Token token;
  fill_random(token);
  const std::lock_guard lock(mutex_);
  invited_.insert(token);
  return token;
}

std::shared_ptr<LocalClient> LocalServer::dismiss(const Token& token) {
  if (!epoll_) return nullptr;  // a forked child: the sessions belong to the parent
  const std::lock_guard lock(mutex_);
  invited_.erase(token);
  return see_out(token);
}

std::shared_ptr<LocalClient> LocalServer::see_out(const Token& token) {
  const auto found =
      std::ranges::find_if(guests_, [&](const auto& entry) { return entry.second.token == token; });
  return found == guests_.end() ? nullptr : see_out(found->first);
}

// The client's socket stays open until the client closes its end: Exposures checks it.
std::shared_ptr<LocalClient> LocalServer::see_out(int fd) {
  const auto found = guests_.find(fd);
  if (found == guests_.end()) return nullptr;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  auto client = std::move(found->second.client);
  client->dismiss();
  guests_.erase(found);
  return client;
}

bool LocalServer::serve() noexcept {
  bool rung = false;
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    try {
      if (fd == acceptor_.fd()) {
        acceptor_.accept();
      } else if (pending_.contains(fd)) {
        hear_pending(fd);
      } else {
        rung = hear_guest(fd) || rung;
      }
    } catch (const std::exception& error) {
      acceptor_.settle(fd);
      pending_.erase(fd);
      const std::lock_guard lock(mutex_);
      see_out(fd);
      report({"the local server for processes of this host: ", error.what()});
    }
  }
  return rung;
}

void LocalServer::look() noexcept { acceptor_.look(Acceptor::Clock::now()); }

void LocalServer::admit(UniqueFd connection) {
  const int fd = connection.get();
  // A client could use what it receives beyond its rights; but a process of this user could do that
  // anyway, by ptrace.
  const bool comes_in = other_end(fd).uid == ::geteuid() && watch(epoll_.get(), fd);
  if (!comes_in) return acceptor_.settle(fd);
  pending_.emplace(fd, std::move(connection));
}

void LocalServer::turn_away(int fd, const char*) noexcept { pending_.erase(fd); }

void LocalServer::watch_listener(bool watched) noexcept {
  // The listener stays in the set: EPOLL_CTL_MOD needs no memory, so it cannot fail for lack of it.
  epoll_event event{.events = watched ? std::uint32_t{EPOLLIN} : 0U,
                    .data = {.fd = acceptor_.fd()}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, acceptor_.fd(), &event);
}

// Reads one packet, which must be a knock with a valid token; anything else ends the connection.
void LocalServer::hear_pending(int fd) {
  std::array<std::byte, sizeof(Knock)> bytes;
  const auto packet = receive_packet(fd, bytes);
  if (!packet) return;
  UniqueFd socket = std::move(pending_.at(fd));
  pending_.erase(fd);
  acceptor_.settle(fd);
  if (packet->nbytes != sizeof(Knock)) return;
  const auto knock = value_of<Knock>(bytes);
  if (knock.version == kLocalServerVersion) let_in(std::move(socket), knock.token);
}

void LocalServer::let_in(UniqueFd socket, const Token& token) {
  const std::lock_guard lock(mutex_);
  if (!invited_.contains(token)) return;
  const int fd = socket.get();
  auto client = std::make_shared<LocalClient>(std::move(socket));
  exposures_->admit(client);  // before it learns of any exposure
  // Exposures keeps the socket open, and once hung up it would stay readable for ever.
  const auto turn_away = [&] {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    client->dismiss();
  };
  try {
    const bool stays = give(*client, Gift::generations, exposures_->generations().get(),
                            GenerationTable::kNbytes) &&
                       give(*client, Gift::hazards, client->hazards_fd(), sizeof(Hazards)) &&
                       give(*client, Gift::board, board_.fd(), board_.nbytes());
    if (!stays) return turn_away();
  } catch (const Error&) {
    turn_away();
    throw;
  }
  // A second knock with this token means that the client gave up on the first.
  see_out(token);
  guests_.emplace(fd, Guest{.client = std::move(client), .token = token});
}

bool LocalServer::give(const LocalClient& client, Gift gift, int descriptor,
                       std::uint64_t nbytes) const {
  const Given given{.gift = gift,
                    .nbytes = nbytes,
                    .probe_address = reinterpret_cast<std::uintptr_t>(&probe_),
                    .probe = probe_};
  // An empty socket buffer has room for three packets.
  if (send_packet(client.socket(), bytes_of(given), descriptor)) return true;
  if (errno == EPIPE || errno == ECONNRESET) return false;
  throw Error(errno_message("a client cannot be given the shared pages", errno), errno);
}

// Returns whether sleeping threads should be woken.
bool LocalServer::hear_guest(int fd) {
  std::shared_ptr<LocalClient> client;
  {
    const std::lock_guard lock(mutex_);
    const auto found = guests_.find(fd);
    if (found == guests_.end()) return false;  // dismissed meanwhile
    client = found->second.client;
  }
  std::array<std::byte, sizeof(Ask)> bytes;
  const auto packet = receive_packet(fd, bytes);
  if (!packet) return false;
  if (packet->nbytes == sizeof(Ask)) {
    const auto ask = value_of<Ask>(std::span(bytes));
    if (ask.wish == Wish::wake) return true;
    if (ask.wish == Wish::memory) return answer(client, ask), false;
  }
  const std::lock_guard lock(mutex_);
  see_out(fd);
  return false;
}

// Questions that need a driver are answered on the driver thread.
void LocalServer::answer(const std::shared_ptr<LocalClient>& client, const Ask& ask) const {
  if (!drivers_ || !exposures_->goes_in_chunks(ask.key)) {
    return give_answer(*exposures_, *client, ask);
  }
  if (client->questions.fetch_add(1) >= kMostQuestions) {
    client->questions.fetch_sub(1);
    return refuse(*client, ask, "its process has too many pending requests");
  }
  Executor::Work work = [client, exposures = exposures_, ask] {
    try {
      give_answer(*exposures, *client, ask);
    } catch (const std::exception& error) {
      report({"a request of a process of this host failed: ", error.what()});
    }
    client->questions.fetch_sub(1);
  };
  if (!drivers_->run(work)) work();  // no thread available: answer here, if late
}

}  // namespace zerohop::shm
