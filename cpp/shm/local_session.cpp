// The questions of a client and the answers to them.
#include "shm/local_session.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/wire_text.hpp"
#include "shm/generation_table.hpp"

namespace zerohop::shm {
namespace {

// An owner that was out of a resource may have it again: repeat the question after this time.
constexpr std::chrono::seconds kAskAgain{1};

constexpr int kMostPackets = 64;  // processed per call, so that deadlines are checked in between

constexpr const char* kNoDescriptors =
    "a descriptor of its process could not be taken in; raise the limit of open files (ulimit -n)";

// How this process may access the memory of `process`, tested on one word; empty when it may.
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
  return "its process id belongs to another process";
}

void check(bool good) {
  if (good) return;
  throw ProtocolError("a process of this host sent an invalid answer from its local server");
}

}  // namespace

std::shared_ptr<LocalSession> LocalSession::begin(const std::string& local_server,
                                                  const Token& token, std::uint64_t board_nbytes) {
  UniqueFd socket = connect_local(local_server);
  if (!socket) {
    throw RouteUnavailable(
        errno == ECONNREFUSED
            ? "it is on another host, or in a network namespace (container) of its own"
            : errno_message("its Unix socket cannot be reached", errno),
        errno);
  }
  if (other_end(socket.get()).uid != ::geteuid()) {
    throw RouteUnavailable(
        "its process is another user's, and both could write beyond the shared memory", EPERM);
  }
  if (!send_packet(socket.get(), bytes_of(Knock{.token = token}))) {
    throw RouteUnavailable(errno_message("its Unix socket does not accept packets", errno), errno);
  }
  return std::shared_ptr<LocalSession>(new LocalSession(std::move(socket), board_nbytes));
}

void LocalSession::enter(const Deadline& deadline) {
  Lock lock(mutex_);
  enter(lock, deadline);
}

void LocalSession::enter(Lock& lock, const Deadline& deadline) {
  if (gifts_ == kGifts && !ended_) return;
  const bool in = listen(lock, [this] { return gifts_ == kGifts; }, deadline);
  if (ended_) throw_ended();
  if (!in) throw TransferTimeout("its process did not answer in time");
}

void LocalSession::throw_ended() const { throw RouteUnavailable(*ended_); }

void LocalSession::end() noexcept {
  left_.store(true);
  // Wakes the listening thread. The owner sees the end only after the last copy.
  ::shutdown(socket_.get(), SHUT_RD);
}

bool LocalSession::ended() const {
  const Lock lock(mutex_);
  return ended_.has_value();
}

std::shared_ptr<const RemoteMapping> LocalSession::find(std::uint64_t key) const {
  const Lock lock(mutex_);
  const auto known = mappings_.find(key);
  return known == mappings_.end() ? nullptr : known->second;
}

std::size_t LocalSession::forget_ended() {
  std::vector<Mappings::node_type> ended;  // unmapped outside the lock
  const Lock lock(mutex_);
  return forget_ended(ended);
}

std::size_t LocalSession::forget_ended(std::vector<Mappings::node_type>& ended) {
  const auto mapping_of = [](const auto& mapping) -> const RemoteMapping& { return *mapping; };
  return take_ended(mappings_, struck_seen_, mapping_of, ended);
}

LocalSession::Opened LocalSession::open(std::uint64_t key, std::uint64_t address,
                                        const Deadline& deadline) {
  std::vector<Mappings::node_type> ended;  // unmapped outside the lock
  Lock lock(mutex_);
  const auto known = mappings_.find(key);
  if (known != mappings_.end()) return {.mapping = known->second, .exported = nullptr};
  enter(lock, deadline);
  forget_ended(ended);
  const Wanted wanted{key, address};
  ask(wanted);
  const std::shared_ptr<const Question> question = questions_.at(wanted);
  const bool answered = listen(lock, [&] { return question->answered; }, deadline);
  if (answered && !question->trouble.empty()) throw Error(question->trouble);
  if (answered) return question->opened;
  if (ended_) throw_ended();
  throw TransferTimeout("its process did not answer in time");
}

// Asks only once, however many callers want the answer; a late answer harms nobody.
void LocalSession::ask(const Wanted& wanted) {
  auto& question = questions_[wanted];
  const auto now = Deadline::Clock::now();
  if (question && now - question->asked < kAskAgain) return;
  if (!question) {
    question = std::make_shared<Question>();
    question->sequence = ++last_sequence_;
  }
  question->asked = now;
  const Ask wish{.wish = Wish::memory,
                 .sequence = question->sequence,
                 .key = wanted.first,
                 .address = wanted.second};
  if (send_packet(socket_.get(), bytes_of(wish))) return;
  const bool left = errno != EAGAIN;
  questions_.erase(wanted);
  if (!left) throw Error("its process accepts no questions for now", EAGAIN);
  end("its process has left");
  throw_ended();
}

// Waits until done(), called with the mutex held, or until the session ends or the deadline passes.
// One thread at a time polls the socket, without the mutex; the others wait for it.
template <typename Done>
bool LocalSession::listen(Lock& lock, Done done, const Deadline& deadline) {
  for (;;) {
    hear();
    if (done()) return true;
    if (ended_ || deadline.passed()) return false;
    if (listening_) {
      heard_.wait_until(lock, deadline.at());
      continue;
    }
    listening_ = true;
    lock.unlock();
    pollfd waited{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    ::poll(&waited, 1, deadline.remaining_ms());
    lock.lock();
    listening_ = false;
    heard_.notify_all();
  }
}

// Processes the packets that have arrived.
void LocalSession::hear() noexcept {
  constexpr std::size_t kMost = std::max(sizeof(Given), sizeof(Reply));
  try {
    for (int packets = 0; packets < kMostPackets && !ended_; ++packets) {
      std::array<std::byte, kMost> bytes;
      auto packet = receive_packet(socket_.get(), bytes);
      if (!packet) return;
      const auto content = std::span(bytes).first(packet->nbytes);
      if (content.empty()) {
        end(left_.load()       ? "the connection has ended"
            : gifts_ == kGifts ? "its process has left, or has ended the connection"
                               : "it ended the session: it refuses the token, or has left");
      } else if (gifts_ < kGifts) {
        take(value_of<Given>(content), *packet);
      } else {
        take(value_of<Reply>(content), *packet);
      }
    }
  } catch (const std::exception& error) {
    end(error.what());
  }
}

void LocalSession::end(std::string_view reason) noexcept {
  auto& why = ended_.emplace();
  try {
    why = reason;
  } catch (const std::bad_alloc&) {
    why = "out of memory";  // short enough to need no allocation
  }
}

void LocalSession::take(const Given& given, Packet& packet) {
  if (packet.lost_fd) throw Error(kNoDescriptors);
  check(given.version == kLocalServerVersion && given.gift == Gift{gifts_} && packet.fd);
  const auto map = [&](std::uint64_t nbytes, bool writable) {
    check(given.nbytes == nbytes);
    return std::make_unique<const Mapping>(packet.fd.get(), nbytes, writable);
  };
  switch (given.gift) {
    case Gift::generations:
      generations_ = map(GenerationTable::kNbytes, /*writable=*/false);
      find_process(given);
      break;
    case Gift::hazards: hazards_ = map(sizeof(Hazards), /*writable=*/true); break;
    case Gift::board: board_ = map(board_nbytes_, /*writable=*/true); break;
  }
  ++gifts_;
}

void LocalSession::find_process(const Given& given) {
  process_ = other_end(socket_.get()).pid;
  process_reason_ = try_process(process_, given);
}

// Ignores an answer to a question that is no longer pending.
void LocalSession::take(const Reply& reply, Packet& packet) {
  const auto found = std::ranges::find(questions_, reply.sequence,
                                       [](const auto& entry) { return entry.second->sequence; });
  if (found == questions_.end() || found->first.first != reply.key) return;
  const std::shared_ptr<Question> question = found->second;
  questions_.erase(found);
  question->answered = true;
  try {
    question->opened = take_in(reply, packet);
    const auto& [mapping, exported] = question->opened;
    if (mapping && !exported && stands(*mapping)) mappings_.emplace(reply.key, mapping);
  } catch (const Error& error) {
    question->trouble = error.what();
  }
}

LocalSession::Opened LocalSession::take_in(const Reply& reply, Packet& packet) const {
  if (reply.answer == Answer::unknown_key) return {};
  if (reply.answer == Answer::out_of_descriptors) {
    throw Error("its process cannot share the memory: it is out of descriptors (ulimit -n)");
  }
  if (reply.answer == Answer::refused) {
    check(reply.reason.back() == 0);
    throw Error(wire_text(reply.reason.data(), reply.reason.size()));
  }
  check(reply.answer == Answer::offered && reply.slot < GenerationTable::kSlots &&
        reply.begin <= reply.end);
  auto mapping = std::make_shared<RemoteMapping>();
  mapping->entry = {.slot = reply.slot, .serial = reply.serial};
  mapping->key = reply.key;
  mapping->begin = reply.begin;
  mapping->end = reply.end;
  mapping->writable = reply.writable != 0;
  if (packet.lost_fd) throw Error(kNoDescriptors);
  if (reply.handle_nbytes > 0) {
    check(reply.handle_nbytes <= reply.handle.size() && reply.chunk_begin <= reply.begin &&
          reply.end <= reply.chunk_end);
    return {.mapping = mapping,
            .exported = std::make_shared<const ExportedChunk>(ExportedChunk{
                .begin = reply.chunk_begin,
                .end = reply.chunk_end,
                .handle = {reply.handle.begin(), reply.handle.begin() + reply.handle_nbytes},
                .descriptor = std::move(packet.fd)})};
  }
  if (reply.has_pages == 0) {
    mapping->trouble = process_reason_;
    return {.mapping = mapping, .exported = nullptr};
  }
  mapping->pages =
      std::make_unique<const Mapping>(packet.fd.get(), reply.end - reply.begin, mapping->writable);
  return {.mapping = mapping, .exported = nullptr};
}

void LocalSession::ring() const noexcept {
  // Lost only if the owner has so many packets queued that it will wake up anyway.
  send_packet(socket_.get(), bytes_of(Ask{.wish = Wish::wake}));
}

}  // namespace zerohop::shm
