// The owner at whose local server a session is made, by hand: it gives and tells anything, with any
// descriptor, and changes the pages that it has given at any time.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <optional>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "input.hpp"
#include "shm/generation_table.hpp"
#include "shm/local_session.hpp"

namespace {

using namespace zerohop;
using zerohop::fuzz::Input;
using zerohop::fuzz::require;

constexpr std::uint64_t kBoardNbytes = 4096;
constexpr std::uint64_t kFar = 0x10000;  // where memory of the owner begins, as it says
constexpr std::size_t kMostSteps = 24;

Deadline at_once() { return Deadline::after(Deadline::Seconds(0)); }

class Owner {
 public:
  explicit Owner(Input& input) : input_(input), listener_(shm::listen_local(kName)) {
    session_ = shm::LocalSession::begin(kName, {}, kBoardNbytes);
    socket_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    require(static_cast<bool>(socket_), "a session knocks");
  }

  void play() {
    for (std::uint32_t gift = 0; gift < shm::kGifts; ++gift) give(gift);
    if (!tried([&] { session_->enter(at_once()); })) return;
    for (std::size_t step = 0; step < kMostSteps && !input_.empty(); ++step) {
      switch (input_.byte() % 8) {
        case 0: send(input_.blob()); break;
        case 1: spoil(); break;
        case 2: use(); break;
        case 3: session_->ring(); break;
        default: ask_and_tell(); break;
      }
    }
    session_->end();
  }

 private:
  static constexpr const char* kName = "zerohop-fuzz-session";

  template <typename Call>
  bool tried(Call call) {
    try {
      call();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  // A memfd as it should be, or not.
  int take_descriptor(std::uint64_t nbytes) {
    switch (input_.byte() % 16) {
      case 0: return -1;
      case 1: return STDERR_FILENO;
      case 2: return keep(Buffer(64));
      case 3: return unsealed();
      default: return keep(Buffer(nbytes));
    }
  }
  int keep(Buffer buffer) {
    given_.push_back(std::move(buffer));
    return given_.back().fd();
  }
  int unsealed() {
    if (!unsealed_) {
      unsealed_ = UniqueFd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      require(::ftruncate(unsealed_.get(), 1 << 20) == 0, "a file can be made");
    }
    return unsealed_.get();
  }
  void send(std::span<const std::byte> bytes, int descriptor = -1) {
    shm::send_packet(socket_.get(), bytes, descriptor);
  }

  void give(std::uint32_t number) {
    const std::uint64_t nbytes = number == 0   ? shm::GenerationTable::kNbytes
                                 : number == 1 ? sizeof(shm::Hazards)
                                               : kBoardNbytes;
    shm::Given given{.gift = shm::Gift{number}, .nbytes = nbytes};
    given.probe_address = reinterpret_cast<std::uintptr_t>(&given.probe);
    if (input_.byte() % 32 == 0) given.nbytes = input_.take<std::uint64_t>();
    if (input_.byte() % 32 == 0) given.gift = shm::Gift{input_.take<std::uint32_t>()};
    if (input_.byte() % 32 == 0) given.version = input_.byte();
    if (input_.byte() % 32 == 0) given.probe_address = input_.take<std::uint64_t>();
    const int descriptor = take_descriptor(nbytes);
    if (input_.byte() % 32 == 0) return send(input_.blob(), descriptor);
    send(shm::bytes_of(given), descriptor);
  }

  shm::Reply take_reported(std::uint64_t key) {
    shm::Reply reply{.answer = shm::Answer::offered, .key = key};
    if (input_.byte() % 4 == 0) reply.answer = static_cast<shm::Answer>(input_.byte() % 5);
    reply.sequence = input_.byte() % 8 == 0 ? input_.byte() : asked_;
    reply.slot = input_.byte() % 8 == 0 ? input_.take<std::uint32_t>() : input_.byte();
    reply.serial = input_.byte() % 2;
    reply.begin = input_.byte() % 8 == 0 ? input_.take<std::uint64_t>() : kFar;
    reply.end = input_.byte() % 8 == 0 ? input_.take<std::uint64_t>() : kFar + 4096;
    reply.writable = input_.byte();
    reply.has_pages = input_.byte() % 4;
    if (input_.byte() % 8 == 0) {
      reply.handle_nbytes = input_.byte();
      reply.chunk_begin = input_.take<std::uint64_t>();
      reply.chunk_end = input_.take<std::uint64_t>();
    }
    reply.reason.fill('x');
    if (input_.flag()) reply.reason.back() = 0;
    return reply;
  }

  // The answer is there when it is looked for a second time.
  void ask_and_tell() {
    const std::uint64_t key = input_.byte() % 8;
    if (!session_->find(key)) ++asked_;
    tried([&] { session_->open(key, 0, at_once()); });
    send(shm::bytes_of(take_reported(key)), take_descriptor(4096));
    shm::LocalSession::Opened opened;
    tried([&] { opened = session_->open(key, 0, at_once()); });
    if (opened.mapping && !opened.exported) mapping_ = opened.mapping;
  }

  // The owner's own pages, which the client looks at.
  void spoil() {
    if (given_.empty()) return;
    const Buffer& buffer = given_[input_.below(given_.size())];
    if (buffer.nbytes() < 8) return;
    auto* const words = reinterpret_cast<std::atomic<std::uint32_t>*>(buffer.data());
    words[input_.below(buffer.nbytes() / 4)].store(input_.flag() ? 1
                                                                 : input_.take<std::uint32_t>());
  }

  // As a transfer does that was checked against the mapping.
  void use() {
    if (!mapping_ || !mapping_->trouble.empty()) return;
    const std::uint64_t from = mapping_->begin + input_.byte();
    const std::uint64_t nbytes = input_.byte();
    if (!mapping_->covers(from, from + nbytes) || nbytes == 0) return;
    if (!mapping_->pages) return;  // of this process, at addresses that are made up
    std::array<std::byte, 256> ours{};
    const Run run{reinterpret_cast<std::uintptr_t>(ours.data()), from, nbytes};
    const bool writes = mapping_->writable && input_.flag();
    std::uint64_t copied = 0;
    session_->copy(*mapping_, writes ? shm::Direction::write : shm::Direction::read,
                   std::span(&run, 1), copied);
    require(copied <= nbytes, "no more is copied than was asked for");
  }

  Input& input_;
  UniqueFd listener_, socket_, unsealed_;
  std::vector<Buffer> given_;
  std::shared_ptr<shm::LocalSession> session_;
  std::shared_ptr<const shm::RemoteMapping> mapping_;
  std::uint32_t asked_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  Input input(data, nbytes);
  Owner(input).play();
  return 0;
}
