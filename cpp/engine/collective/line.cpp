#include "engine/collective/line.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "engine/collective/schedule.hpp"

namespace zerohop::engine::collective {
namespace {

// A notification reports what no message has carried, and the end of a lap: everything after the
// oldest message fits in that message's lap.
constexpr std::uint64_t kReturn = 16;  // messages
constexpr std::size_t kReturnBytes = 2 * kLongest;
constexpr std::uint64_t kModulus = std::uint64_t{1} << 30;  // counts wrap; 0 is an empty slot

std::uint32_t in_slot(std::uint64_t count) {
  return static_cast<std::uint32_t>(1 + count % kModulus);
}

// How far the value in a slot is ahead of `count`.
std::uint64_t news(std::uint32_t value, std::uint64_t count) {
  return (std::uint64_t{value} - 1 - count) % kModulus;
}

double seconds_left(const Deadline& deadline) {
  return std::max(0.0, Deadline::Seconds(deadline.at() - Deadline::Clock::now()).count());
}

}  // namespace

bool Expected::bring(const Label& label) noexcept {
  const auto begin = moves_.begin() + static_cast<std::ptrdiff_t>(next_);
  const auto found =
      std::find_if(begin, moves_.end(), [&](const Move* move) { return move->label == label; });
  if (found == moves_.end()) return false;
  std::rotate(begin, found, found + 1);
  return true;
}

Message read_message(std::span<const std::byte> bytes) {
  Message message;
  std::memcpy(&message.header, bytes.data(), sizeof(Header));
  const auto& [label, what, unused, emptied, length] = message.header;
  if (what > What::ask || static_cast<std::uint8_t>(label.kind) >= kKinds || length > kEager) {
    throw ProtocolError("bytes arrived that are no message of a collective");
  }
  message.payload = bytes.subspan(sizeof(Header), length);
  message.in_inbox = true;
  return message;
}

Line::Line(Rank rank, std::shared_ptr<Peer> peer, Memory inbox, const Slots& slots)
    : rank_(rank),
      peer_(std::move(peer)),
      slots_(slots),
      inbox_(std::move(inbox)),
      registration_(inbox_.registration()) {
  if (inbox_.layout().nbytes() != kInbox || !inbox_.on_host()) {
    throw std::invalid_argument("an inbox has " + std::to_string(kInbox) + " bytes");
  }
}

void Line::meet(RemoteMemory inbox, bool checked, bool near) {
  message_there_ = std::move(inbox);
  inbox_there_ = message_there_->layout.address;
  checked_ = checked;
  near_ = near && !checked;
}

// A lower count comes from a rank that gives up before it knows more.
void Line::heard(std::uint32_t value) noexcept {
  const std::uint64_t more = news(value, arrived_);
  for (std::uint64_t one = 0; more <= kMostMessages && one < more; ++one) {
    Header header;
    std::memcpy(&header, at(arriving_.offset()).data(), sizeof(header));
    count_free(static_cast<std::uint16_t>(header.emptied - free_));
    // An overlong message is detected when it is taken.
    arriving_.pass(std::min<std::size_t>(header.length, kEager));
    ++arrived_;
  }
  over_ = over_ || value >= kOver;
}

// A count older than free_ appears as a huge step, modulo 2^16 or 2^30, and is ignored.
void Line::count_free(std::uint64_t more) noexcept {
  if (more > sent_ - free_) return;
  free_ += more;
  room_.free(more);
}

void Line::has_room(std::uint32_t value) noexcept {
  count_free(news(value, free_));
  over_ = over_ || value >= kOver;
}

bool Line::put(const Header& header, std::span<const std::byte> payload) {
  message_there_->layout.address = inbox_there_ + room_.next();
  const Peer::Parts parts{std::as_bytes(std::span(&header, 1)), payload};
  if (!peer_->put(parts, *message_there_, {slots_.messages, in_slot(sent_ + 1)})) return false;
  count_sent(payload.size());
  post(nullptr, false);
  return true;
}

std::shared_ptr<Transfer> Line::send(const Memory& from, const Deadline& deadline) {
  const std::uint64_t nbytes = from.layout().nbytes();
  message_there_->layout = Layout::bytes(inbox_there_ + room_.next(), nbytes);
  const Peer::Pair pair{&from, &*message_there_};
  TransferOptions options;
  options.notify = Notification{slots_.messages, in_slot(sent_ + 1)};
  options.timeout = seconds_left(deadline);
  auto posted = peer_->put(pair, options);
  count_sent(nbytes - sizeof(Header));
  post(posted, false);
  return posted;
}

// Counts a message that also carries the count of consumed ones.
void Line::count_sent(std::size_t length) {
  room_.put(length);
  ++sent_;
  reported_ = taken_;
  unreported_bytes_ = 0;
}

void Line::write(const Memory& block, const RemoteMemory& there, const Deadline& deadline) {
  const Peer::Pair pair{&block, &there};
  TransferOptions options;
  options.timeout = seconds_left(deadline);
  post(peer_->put(pair, options), true);
}

void Line::post(std::shared_ptr<Transfer> transfer, bool is_block) {
  if (transfer) {
    posted_.push_back({std::move(transfer), sent_, is_block});
  } else if (posted_.empty()) {
    good_ = sent_;
  } else {
    posted_.back().messages = sent_;
  }
}

void Line::look() {
  while (!posted_.empty() && posted_.front().transfer->done()) {
    (void)posted_.front().transfer->result();  // a failed one stays
    good_ = posted_.front().messages;
    posted_.pop_front();
  }
}

std::shared_ptr<Transfer> Line::oldest() const {
  return posted_.empty() ? nullptr : posted_.front().transfer;
}

std::shared_ptr<Transfer> Line::oldest_before_blocks_end() const {
  const bool any = std::ranges::any_of(posted_, &Posted::is_block);
  return any ? posted_.front().transfer : nullptr;
}

std::span<const std::byte> Line::at(std::size_t offset) const noexcept {
  return {reinterpret_cast<const std::byte*>(inbox_.layout().address) + offset, kLongest};
}

std::optional<Message> Line::take(unsigned wanted, bool of_all) {
  const auto is_wanted = [&](const Message& message) {
    return of_all || (wanted >> static_cast<unsigned>(message.header.what) & 1) != 0;
  };
  const auto found = std::ranges::find_if(early_, is_wanted);
  if (found != early_.end()) {
    Message message = std::move(*found);
    early_.erase(found);
    return message;
  }
  while (has_news()) {
    Message message = read_message(at(taking_.offset()));
    if (is_wanted(message) || message.header.label.kind != Kind::send_recv) return message;
    message.kept.assign(message.payload.begin(), message.payload.end());
    message.payload = message.kept;
    message.in_inbox = false;
    const std::size_t length = message.header.length;
    early_.push_back(std::move(message));  // the bytes stay in place
    count_taken(length);
  }
  return std::nullopt;
}

void Line::emptied(const Message& message) {
  if (message.in_inbox) count_taken(message.header.length);
}

void Line::count_taken(std::size_t length) {
  taking_.pass(length);
  unreported_bytes_ += room_of(length);
  ++taken_;
  const bool ends_lap = taking_.offset() == 0;
  if (taken_ - reported_ < kReturn && unreported_bytes_ < kReturnBytes && !ends_lap) return;
  report();
}

void Line::report() {
  if (reported_ == taken_) return;
  reported_ = taken_;
  unreported_bytes_ = 0;
  try {
    peer_->put(Notification{slots_.credits, in_slot(taken_)});
  } catch (const Error&) {  // a rank that has left needs no notice
  }
}

std::vector<Label> Line::untaken() const {
  std::vector<Label> labels;
  for (const Message& message : early_) labels.push_back(message.header.label);
  Position next = taking_;
  for (std::uint64_t number = taken_; number < arrived_; ++number) {
    const Header header = read_message(at(next.offset())).header;
    labels.push_back(header.label);
    next.pass(header.length);
  }
  return labels;
}

void Line::ring_off(const Deadline& deadline) {
  try {
    while (!posted_.empty() && posted_.front().transfer->wait(deadline)) look();
  } catch (const Error&) {
  }
  if (!posted_.empty() && !posted_.front().transfer->done()) return;
  try {
    peer_->notify({slots_.messages, kOver | in_slot(good_)});
    peer_->notify({slots_.credits, kOver | in_slot(taken_)});
  } catch (const Error&) {
  }
}

}  // namespace zerohop::engine::collective
