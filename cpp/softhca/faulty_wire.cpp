#include "softhca/faulty_wire.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/log.hpp"
#include "softhca/ack_timeout.hpp"
#include "softhca/context.hpp"
#include "softhca/ordering.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

// The kind of a packet; each kind counts its own numbers.
enum Kind : std::uint8_t { kRequest, kResponse, kAcknowledgement, kReceive };

constexpr std::uint8_t kWhichBit = 64;  // a question for the dice other than a Fault
constexpr std::uint8_t kHowMuch = 65;

// Without a timer nothing lost would ever be resent. Then uses code 14, the default of most
// programs.
Clock::duration one_try(const ibv_qp_attr& attributes) {
  return ack_timeout(attributes.timeout == 0 ? std::uint8_t{14} : attributes.timeout);
}

constexpr Clock::time_point kNow{};  // value if nothing is delayed

}  // namespace

FaultyWire::FaultyWire(QueuePair& qp, DeviceFaults& device, const Faults& faults)
    : qp_(qp),
      device_(device),
      faults_(faults),
      dice_(faults.seed, qp.ordinal),
      packet_(new std::byte[kMost]) {}

FaultyWire::~FaultyWire() { qp_.device.timers.cancel(*this); }

void FaultyWire::change(const Faults& faults) noexcept {
  faults_ = faults;
  dice_ = Dice(faults.seed, qp_.ordinal);
  posted_ = 0;
}

void FaultyWire::reset() noexcept {
  qp_.device.timers.cancel(*this);
  nbytes_ = 0;
  sealed_ = false;
  next_number_ = 0;
  due_ = reads_at_ = kNow;
  named_ = {};
  not_ready_tries_ = 0;
}

ssize_t FaultyWire::take(IoVector& parts, std::size_t first, std::size_t end) noexcept {
  [[maybe_unused]] const ordering::Sending sending;
  const std::size_t before = nbytes_;
  for (std::size_t i = first; i < end; ++i) {
    const iovec& part = parts.data()[i];
    std::memcpy(&packet_[nbytes_], part.iov_base, part.iov_len);
    nbytes_ += part.iov_len;
  }
  return static_cast<ssize_t>(nbytes_ - before);
}

void FaultyWire::seal() noexcept {
  name();
  alter();
  seal_frame({packet_.get(), nbytes_}, next_number_);
  sealed_ = true;
  begin_try({});
}

// Flips a bit in the data of a write or of a read response, as faulty memory or a faulty bus might.
// The checksum is computed afterwards, so it covers the wrong data.
void FaultyWire::alter() noexcept {
  wire::Prefix prefix;
  wire::Packet packet;
  std::memcpy(&prefix, packet_.get(), sizeof prefix);
  if (prefix.packets != 1 || nbytes_ <= prefix.control_bytes) return;
  std::memcpy(&packet, &packet_[kCheckEnd], sizeof packet);
  if (packet.op != wire::Op::write && packet.op != wire::Op::read_response) return;
  if (!hits(Fault::alter, faults_.alter)) return;
  bit_ = prefix.control_bytes * std::size_t{8} +
         dice_.bits(asked(kWhichBit)) % ((nbytes_ - prefix.control_bytes) * 8);
  flip_bit();
}

// Names the packet by its content, not by the time it leaves: by the number of its request and its
// position among that request's packets.
void FaultyWire::name() noexcept {
  wire::Prefix prefix;
  wire::Packet packet;
  std::memcpy(&prefix, packet_.get(), sizeof prefix);
  Dice::Throw named{
      .what = 0, .kind = kRequest, .index = prefix.first_request, .part = 0, .attempt = 0};
  if (prefix.packets == 0) {
    named.kind = kAcknowledgement;
    named.index = prefix.acknowledged;
  } else {
    std::memcpy(&packet, &packet_[kCheckEnd], sizeof packet);
    if (packet.op > wire::Op::fetch_add) {
      named.kind = kResponse;
      named.index = packet.sequence;
    }
  }
  const bool follows = named.kind == named_.kind && named.index == named_.index &&
                       (prefix.flags & wire::kRestart) == 0 && next_number_ > 0;
  if (follows) named.part = named_.part + 1;
  named_ = named;
}

// Decides the fate of the packet on this try, and when it leaves.
void FaultyWire::begin_try(Clock::duration after) noexcept {
  leaving_ = {packet_.get(), nbytes_};
  fate_ = Fate::arrives;
  if (hits(Fault::cut, faults_.cut)) {
    leaving_ = {};
    fate_ = Fate::ends;
  } else if (hits(Fault::partial, faults_.partial)) {
    shorten();
    fate_ = Fate::ends;
  } else if (hits(Fault::drop, faults_.drop)) {
    leaving_ = {};
    fate_ = Fate::lost;
  } else if (hits(Fault::corrupt, faults_.corrupt)) {
    choose_bit();
    flip_bit();
    fate_ = Fate::damaged;
  } else if (hits(Fault::duplicate, faults_.duplicate)) {
    fate_ = Fate::repeated;
  }
  if (faults_.delay.count() > 0 && hits(Fault::delay, faults_.delay_rate)) after += faults_.delay;
  if (after.count() > 0) wake_at(due_, after);
}

// Asks the dice, and counts the fault if they hit; the caller then injects it.
bool FaultyWire::hits(Fault fault, double rate) noexcept {
  if (!dice_.hits(rate, asked(static_cast<std::uint8_t>(fault)))) return false;
  happened(fault);
  return true;
}

Dice::Throw FaultyWire::asked(std::uint8_t what) const noexcept {
  Dice::Throw asked = named_;
  asked.what = what;
  return asked;
}

// Ends within the payload, if there is any, so that the receiver places its first bytes. The packet
// must therefore not be a checked frame, which is read as a whole.
void FaultyWire::shorten() noexcept {
  leaving_ = uncheck_frame(leaving_);
  wire::Prefix prefix;
  std::memcpy(&prefix, leaving_.data(), sizeof prefix);
  const std::size_t payload = leaving_.size() - prefix.control_bytes;
  const std::size_t kept = payload > 0 ? prefix.control_bytes : 0;
  leaving_ = leaving_.first(kept + dice_.bits(asked(kHowMuch)) % (leaving_.size() - kept));
}

// Never a bit of the frame's length: without that the receiver cannot find the next frame.
void FaultyWire::choose_bit() noexcept {
  constexpr std::size_t kFirst = offsetof(wire::Prefix, first_request) * 8;
  constexpr std::size_t kSpared = sizeof(wire::Check) * 8;
  bit_ = kFirst + dice_.bits(asked(kWhichBit)) % (nbytes_ * 8 - kFirst - kSpared);
  if (bit_ >= kCheckAt * 8) bit_ += kSpared;
}

void FaultyWire::flip_bit() noexcept { packet_[bit_ / 8] ^= static_cast<std::byte>(1 << bit_ % 8); }

FaultyWire::Sent FaultyWire::send() noexcept {
  while (sealed_) {
    if (due_ != kNow) return Sent::held;
    if (const Sent sent = push(); sent != Sent::all) return sent;
    if (!finish()) {
      qp_.fail({.kind = Failure::Kind::lost});
      return Sent::failed;
    }
  }
  return Sent::all;
}

// Passes the pending bytes to the socket.
FaultyWire::Sent FaultyWire::push() noexcept {
  while (!leaving_.empty()) {
    IoVector parts;
    parts.add(leaving_.data(), leaving_.size());
    const ssize_t sent = send_parts(qp_.connection.fd(), parts, 0, 1);
    if (sent >= 0) {
      leaving_ = leaving_.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      return Sent::blocked;
    } else if (errno != EINTR) {
      qp_.reader.read_rest(qp_);  // what the peer sent before it closed still counts
      qp_.fail({.kind = Failure::Kind::lost});
      return Sent::failed;
    }
  }
  return Sent::all;
}

// Everything for this try has been sent. False if the connection must end.
bool FaultyWire::finish() noexcept {
  switch (fate_) {
    case Fate::ends: return false;
    case Fate::damaged: flip_bit(); return try_again();
    case Fate::lost: return try_again();
    case Fate::repeated:
      leaving_ = {packet_.get(), nbytes_};
      fate_ = Fate::arrives;
      return true;
    case Fate::arrives: break;
  }
  sealed_ = false;
  nbytes_ = 0;
  ++next_number_;
  return true;
}

bool FaultyWire::try_again() noexcept {
  if (named_.attempt >= qp_.attributes.retry_cnt) return false;
  ++named_.attempt;
  begin_try(one_try(qp_.attributes));
  return true;
}

void FaultyWire::has_read() noexcept {
  if (faults_.slow.count() == 0) return;
  device_.counts->add(Fault::slow);
  qp_.connection.want_read(false);
  wake_at(reads_at_, faults_.slow);
}

void FaultyWire::read_now() noexcept {
  if (reads_at_ == kNow) return;
  reads_at_ = kNow;
  qp_.connection.want_read(true);
}

bool FaultyWire::finds_no_receive(std::uint32_t request) noexcept {
  if (request != not_ready_at_) not_ready_tries_ = 0;
  const Dice::Throw asked{.what = static_cast<std::uint8_t>(Fault::rnr),
                          .kind = kReceive,
                          .index = request,
                          .part = 0,
                          .attempt = not_ready_tries_};
  if (!dice_.hits(faults_.rnr, asked)) return false;
  happened(Fault::rnr);
  not_ready_at_ = request;
  ++not_ready_tries_;
  return true;
}

ibv_wc_status FaultyWire::posted() noexcept {
  ++posted_;
  if (device_.posted()) happened(Fault::remove);
  if (posted_ != faults_.fail) return IBV_WC_SUCCESS;
  happened(Fault::fail);
  return faults_.fail_status;
}

void FaultyWire::wake_at(Clock::time_point& which, Clock::duration after) noexcept {
  which = Clock::now() + after;
  program();
}

// One wake-up serves both times.
void FaultyWire::program() noexcept {
  auto earliest = Clock::time_point::max();
  for (const Clock::time_point at : {due_, reads_at_}) {
    if (at != kNow) earliest = std::min(earliest, at);
  }
  if (earliest != Clock::time_point::max()) qp_.device.timers.set(*this, earliest);
}

void FaultyWire::on_time() noexcept {
  std::lock_guard guard(qp_.lock);
  const auto now = Clock::now();
  if (due_ != kNow && due_ <= now) due_ = kNow;
  if (reads_at_ <= now) read_now();
  program();
  qp_.acknowledge_late();
}

void FaultyWire::happened(Fault fault) noexcept {
  device_.counts->add(fault);
  log(Level::debug, "faults", [&] {
    constexpr const char* kKinds[] = {"request", "response to request", "acknowledgement",
                                      "request"};
    std::string text = std::string(fault_name(fault)) + " on queue pair " +
                       std::to_string(qp_.ordinal) + " (number " + std::to_string(qp_.qp_num) + ")";
    if (fault == Fault::rnr) return text;
    if (fault == Fault::fail || fault == Fault::remove) {
      return text + ": request " + std::to_string(posted_) + " that was posted";
    }
    text += std::string(": ") + kKinds[named_.kind] + " " + std::to_string(named_.index) +
            ", packet " + std::to_string(named_.part) + ", try " + std::to_string(named_.attempt);
    return text;
  });
}

}  // namespace zerohop::softhca
