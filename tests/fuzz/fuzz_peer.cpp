// A peer that is connected in all form, and whose queue pair then says anything: notifications,
// messages, offers of memory, requests to copy, credits. The Endpoint receives, sends and notifies
// meanwhile.
#include <array>
#include <memory>

#include "couple.hpp"
#include "soft_side.hpp"
#include "stranger.hpp"

namespace {

using namespace zerohop;
using namespace zerohop::engine;
using zerohop::fuzz::Input;
using zerohop::fuzz::require;
using zerohop::fuzz::Stranger;

constexpr std::size_t kMostSteps = 32;
constexpr std::size_t kReceives = 16;
constexpr std::size_t kSlot = 8192;

constexpr int kInputsEach = 32;  // a host whose keys are guessed makes the guesser wait

std::unique_ptr<Endpoint>& hosted() {
  static auto& only = *new std::unique_ptr<Endpoint>;  // its threads run to the end of the process
  return only;
}
Endpoint& host() { return *hosted(); }

Memory array_of(std::int64_t nbytes) { return testing::host_array(host(), {nbytes}); }

testing::SideOptions options_of_side() {
  testing::SideOptions options;
  options.nbytes = 4 * kSlot;
  options.timeout = 1;
  options.retries = 0;
  options.rnr_retries = 1;
  return options;
}

class Attack {
 public:
  explicit Attack(Input& input) : input_(input), stranger_(Stranger::dial(host().address())) {
    greet();
    peer_ = host().accept(testing::soon());
  }
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;

  void play() {
    for (std::size_t step = 0; step < kMostSteps && !input_.empty(); ++step) {
      switch (input_.byte() % 8) {
        case 0: act_as_owner(); break;
        case 1: drain(); break;
        case 2: give_credits(); break;
        case 3: say(input_.bytes(input_.byte())); break;
        default: say_message(); break;
      }
    }
    host().peek_notify(0);
    stranger_.settle();
  }

  // Whatever was begun ends with the connection.
  void leave() {
    stranger_.say(engine::Bye{.reason = "done"});
    stranger_.hear_until([] { return false; });
    for (const auto& transfer : transfers_) {
      require(transfer->wait(testing::soon()), "a transfer ends when its peer has left");
    }
  }

 private:
  void greet() {
    const testing::Address own = side_.address();
    rdma::QueuePairAddress queue_pair{.number = own.number, .psn = own.psn};
    queue_pair.gid = own.gid;
    queue_pair.mtu = IBV_MTU_4096;
    queue_pair.reads_in = queue_pair.reads_out = 16;
    Hello hello;
    hello.id = stranger_.id();
    hello.queue_pairs.push_back(queue_pair);
    hello.receive_slots = kReceives;
    hello.slot_nbytes = kSlot;
    hello.established = 0xffff;  // never yields
    stranger_.greet(hello);
    stranger_.hear_until([this] { return stranger_.hello() != nullptr; });
    const Hello* const answer = stranger_.hello();
    require(answer != nullptr && answer->queue_pairs.size() == 1, "a proper Hello is answered");
    const rdma::QueuePairAddress& theirs = answer->queue_pairs[0];
    testing::Address target{.number = theirs.number, .psn = theirs.psn, .gid = theirs.gid};
    side_.connect(target);
    for (std::size_t i = 0; i < kReceives; ++i) side_.receive(i + 1, kSlot, kSlot);
    stranger_.say(Ready{});
    stranger_.settle();
  }

  void say(const std::vector<std::byte>& bytes) {
    if (bytes.size() > kSlot) return;
    std::ranges::copy(bytes, side_.buffer.get());
    side_.post_message(next_id_++, {side_.sge(0, bytes.size())});
    testing::eventually([this] { return !side_.idle() || side_.state() != IBV_QPS_RTS; });
  }

  // Mostly as a correct peer would make it.
  void say_message() {
    Message message{.kind = static_cast<MessageKind>(input_.byte() % 9)};
    message.taken = input_.byte() % 8 == 0 ? input_.byte() : 0;
    message.tag = input_.byte() % 8 == 0 ? input_.take<std::uint32_t>() : input_.byte() % 4;
    message.value = input_.byte() % 4;
    message.id = input_.byte() % 4;
    std::vector<std::byte> payload;
    if (message.kind == MessageKind::eager) payload = input_.bytes(input_.byte());
    if (message.kind > MessageKind::eager) payload = input_.bytes(input_.byte() % 4 * 8);
    message.nbytes = payload.size();
    if (message.kind == MessageKind::offer) message.nbytes = input_.take<std::uint16_t>();
    if (input_.byte() % 8 == 0) message.nbytes = input_.take<std::uint64_t>();
    message.address = input_.byte() % 4 == 0 ? input_.take<std::uint64_t>() : side_.at(0);
    if (input_.flag()) message.value = side_.mr->rkey;
    std::vector<std::byte> bytes(sizeof message);
    std::memcpy(bytes.data(), &message, sizeof message);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    if (input_.byte() % 16 == 0) bytes.resize(input_.below(bytes.size() + 1));
    say(bytes);
  }

  void give_credits() {
    const std::uint32_t immediate = input_.byte() % 4 == 0 ? input_.take<std::uint32_t>() : 0;
    side_.post(IBV_WR_RDMA_WRITE_WITH_IMM, next_id_++, {},
               [&](ibv_send_wr& work) { work.imm_data = immediate; });
  }

  void drain() {
    ibv_wc completion{};
    while (ibv_poll_cq(side_.cq, 1, &completion) == 1) {
    }
  }

  void act_as_owner() {
    const std::uint32_t tag = input_.byte() % 4;
    try {
      switch (input_.byte() % 4) {
        case 0: transfers_.push_back(peer_->receive(array_of(input_.byte()), tag)); break;
        case 1: transfers_.push_back(peer_->receive(array_of(30'000), tag)); break;
        case 2: transfers_.push_back(peer_->send(array_of(input_.byte() * 200), tag)); break;
        default: transfers_.push_back(peer_->notify({.slot = tag, .value = 1})); break;
      }
    } catch (const Error&) {                  // the connection has ended
    } catch (const std::invalid_argument&) {  // what is there does not fit
    }
  }

  Input& input_;
  testing::Side side_{options_of_side()};
  Stranger stranger_;
  std::shared_ptr<Peer> peer_;
  std::vector<std::shared_ptr<Transfer>> transfers_;
  std::uint64_t next_id_ = 100;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  static int inputs = 0;
  if (inputs++ % kInputsEach == 0) {
    hosted() = std::make_unique<Endpoint>(testing::options("attacked"));
  }
  Input input(data, nbytes);
  Attack attack(input);
  attack.play();
  attack.leave();
  return 0;
}
