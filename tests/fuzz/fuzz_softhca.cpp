// The peer of a queue pair of soft0 that says anything: whole frames, damaged ones and plain bytes,
// while the queue pair's owner posts, receives and closes memory.
#include <array>
#include <map>
#include <optional>

#include "forger.hpp"
#include "input.hpp"

namespace {

using namespace zerohop::testing;
using zerohop::UniqueFd;
using zerohop::fuzz::Input;
using zerohop::fuzz::require;

constexpr std::size_t kPart = 4096;  // of the arena: before, open to all, to be read only, behind
constexpr std::byte kUntouched{0x5a};
constexpr std::size_t kMostSteps = 48;
constexpr std::size_t kMostPayload = 1 << 16;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC;

ibv_context* device() {
  static ibv_context* const context = open_soft0();
  return context;
}

SideOptions small() {
  SideOptions options;
  options.depth = 16;
  options.nbytes = kPart;
  options.reads = 4;
  return options;
}

class Game {
 public:
  explicit Game(Input& input) : input_(input) {
    zerohop::softhca::Context::of(device()).guesses.forget();
    arena_.resize(4 * kPart, kUntouched);
    open_ = soft().reg_mr(side_.pd, part(1), kPart, kAll);
    closed_ = soft().reg_mr(side_.pd, part(2), kPart, IBV_ACCESS_REMOTE_READ);
    require(open_ != nullptr && closed_ != nullptr, "memory can be registered");
    rkey_ = open_->rkey;
    side_.connect(forger_.address());
    fd_ = forger_.enter();
  }
  ~Game() {
    side_.destroy_queue_pair();
    drain();
    if (open_ != nullptr) soft().dereg_mr(open_);
    soft().dereg_mr(closed_);
    for (const std::size_t number : {0, 1, 2, 3}) {
      const bool is_open = number == 1 && !shut_;
      require(is_open || std::all_of(part(number), part(number) + kPart,
                                     [](std::byte byte) { return byte == kUntouched; }),
              "nobody writes what was not opened to writing");
    }
  }

  void play() {
    for (std::size_t step = 0; step < kMostSteps && !input_.empty(); ++step) {
      switch (input_.byte() % 8) {
        case 0: say_bytes(input_.blob()); break;
        case 1: post_receive(); break;
        case 2: post_request(); break;
        case 3: drain(); break;
        case 4: close_memory(); break;
        default: say_frame(); break;
      }
      hear();
    }
    ::shutdown(fd_.get(), SHUT_WR);
    require(is_closed(fd_), "a queue pair whose peer has left lets go of its connection");
  }

 private:
  std::byte* part(std::size_t number) { return arena_.data() + number * kPart; }

  void say_bytes(const std::vector<std::byte>& bytes) { say(fd_, bytes.data(), bytes.size()); }
  void hear() {
    std::array<char, 4096> sink;
    while (::recv(fd_.get(), sink.data(), sink.size(), MSG_DONTWAIT) > 0) {
    }
  }

  std::uint64_t place() {
    const auto far = input_.take<std::int16_t>();
    switch (input_.byte() % 4) {
      case 0: return reinterpret_cast<std::uint64_t>(part(2)) + static_cast<std::uint64_t>(far);
      case 1: return input_.take<std::uint64_t>();
      default: return reinterpret_cast<std::uint64_t>(part(1)) + static_cast<std::uint64_t>(far);
    }
  }
  std::uint32_t key() {
    switch (input_.byte() % 4) {
      case 0: return closed_->rkey;
      case 1: return input_.take<std::uint32_t>();
      default: return rkey_;
    }
  }
  std::uint32_t length() {
    const std::uint8_t size = input_.byte() % 8;
    if (size == 0) return input_.take<std::uint32_t>();
    return size == 1 ? input_.take<std::uint16_t>() : input_.byte();
  }

  wire::Packet take_packet() {
    wire::Packet packet{};
    packet.op = static_cast<wire::Op>(input_.byte() % 11);
    packet.flags = input_.byte() % 32;
    packet.detail = input_.byte();
    packet.sequence = input_.byte();
    packet.key = key();
    packet.nbytes = length();
    packet.address = place();
    return packet;
  }

  // Mostly as a correct peer would make it.
  void say_frame() {
    Frame frame;
    frame.prefix.flags = input_.byte() % 16 == 0;
    frame.prefix.first_request = first_request_;
    if (input_.byte() % 16 == 0) frame.prefix.first_request = input_.byte();
    frame.prefix.acknowledged = input_.byte() % 4;
    if (input_.byte() % 32 == 0) frame.prefix.control_bytes = input_.take<std::uint16_t>();
    std::vector<std::byte> payload;
    for (std::size_t left = input_.byte() % 6; left > 0; --left) add_packet(frame, payload);
    if (input_.byte() % 32 == 0) frame.prefix.packets = input_.byte();
    frame.send(fd_);
    say_bytes(payload);
  }

  void add_packet(Frame& frame, std::vector<std::byte>& payload) {
    const wire::Packet packet = take_packet();
    frame.add(packet);
    const bool has_payload = packet.op == wire::Op::send || packet.op == wire::Op::write ||
                             packet.op == wire::Op::read_response;
    const bool more = (packet.flags & wire::kMore) != 0;
    if (packet.op <= wire::Op::fetch_add && !more) ++first_request_;
    if (packet.op == wire::Op::compare_swap || packet.op == wire::Op::fetch_add) {
      const auto operands = input_.take<wire::Operands>();
      frame.add(&operands, sizeof operands);
    }
    if (!has_payload) return;
    const std::vector<std::byte> bytes(std::min<std::size_t>(packet.nbytes, kMostPayload));
    if ((packet.flags & wire::kInline) == 0) {
      payload.insert(payload.end(), bytes.begin(), bytes.end());
    } else if (!bytes.empty() && bytes.size() <= wire::kInlineBytes) {
      const std::vector<std::byte> padded(wire::padded(bytes.size()));
      frame.add(padded.data(), padded.size());
    }
  }

  void post_receive() {
    const std::size_t nbytes = input_.below(512);
    if (side_.try_receive(next_id_, {side_.sge(input_.below(kPart - 512), nbytes)}) == 0) {
      pending_[next_id_++] = nbytes;
    }
  }

  void post_request() {
    static constexpr std::array kOpcodes = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND,
                                            IBV_WR_ATOMIC_FETCH_AND_ADD};
    const ibv_wr_opcode opcode = kOpcodes[input_.below(kOpcodes.size())];
    const bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    const ibv_sge local = side_.sge(input_.below(64) * 8, atomic ? 8 : input_.below(1024));
    const int error = atomic                  ? side_.post_atomic(opcode, next_id_, local, 64, 1, 1)
                      : opcode == IBV_WR_SEND ? side_.post_message(next_id_, {local})
                                              : side_.post_rdma(opcode, next_id_, local, 64, 1);
    if (error == 0) pending_[next_id_++] = kPart;
  }

  // Every request ends once.
  void drain() {
    ibv_wc completion{};
    while (ibv_poll_cq(side_.cq, 1, &completion) == 1) {
      const auto found = pending_.find(completion.wr_id);
      require(found != pending_.end(), "what completes was posted and has not completed");
      const bool filled = completion.status == IBV_WC_SUCCESS && completion.opcode == IBV_WC_RECV;
      require(!filled || completion.byte_len <= found->second, "a message fits its receive");
      pending_.erase(found);
    }
  }

  void close_memory() {
    if (open_ == nullptr || input_.byte() % 4 != 0) return;
    require(soft().dereg_mr(open_) == 0, "memory can be closed");
    open_ = nullptr;
    std::fill_n(part(1), kPart, kUntouched);
    shut_ = true;
  }

  Input& input_;
  Side side_{small(), device()};
  Forger forger_{side_.address()};
  std::vector<std::byte> arena_;
  ibv_mr* open_ = nullptr;
  ibv_mr* closed_ = nullptr;
  std::uint32_t rkey_ = 0;
  UniqueFd fd_;
  std::uint32_t first_request_ = 0;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, std::size_t> pending_;  // bytes of each, by its id
  bool shut_ = false;                             // what was open is not any more
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  Input input(data, nbytes);
  Game(input).play();
  return 0;
}
