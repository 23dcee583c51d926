#include "engine/collective/lines.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"

namespace zerohop::engine::collective {

Outbox::Outbox(Memory memory)
    : message_(std::move(memory)),
      address_(message_.layout().address),
      registration_(message_.registration()) {}

bool Outbox::has(const Header& header, std::span<const std::byte> payload) const noexcept {
  return !payload.empty() && payload.data() == payload_.data() &&
         payload.size() == payload_.size() && header.label == header_.label &&
         header.what == header_.what && header.emptied == header_.emptied;
}

const Memory& Outbox::put(const Header& header, std::span<const std::byte> payload) {
  if (!has(header, payload)) {
    last_ = next_;
    next_ = (next_ + 1) % kCellCount;
    uses_[last_].clear();
    const std::uint64_t address = address_ + last_ * kLongest;
    auto* const cell = reinterpret_cast<std::byte*>(address);
    std::memcpy(cell, &header, sizeof(header));
    if (!payload.empty()) std::memcpy(cell + sizeof(header), payload.data(), payload.size());
    header_ = header;
    payload_ = payload;
    message_.aim(address, sizeof(header) + payload.size());
  }
  return message_;
}

Lines::Lines(std::shared_ptr<Endpoint> endpoint, Rank rank, const Slots& slots)
    : endpoint_(std::move(endpoint)), rank_(rank), slots_(slots) {}

Line& Lines::add(Rank rank, std::shared_ptr<Peer> peer, Memory inbox, std::uint32_t messages) {
  const Line::Slots there{messages + rank_, messages + slots_.each + rank_};
  auto line = std::make_unique<Line>(rank, std::move(peer), std::move(inbox), there);
  if (rank >= lines_.size()) lines_.resize(std::size_t{rank} + 1);
  if (!lines_[rank]) lines_[rank] = std::move(line);
  over_.reserve(lines_.size());
  return *lines_[rank];
}

Line* Lines::find(Rank rank) const noexcept {
  return rank < lines_.size() ? lines_[rank].get() : nullptr;
}

Line& Lines::at(Rank rank) const {
  if (Line* line = find(rank)) return *line;
  throw std::out_of_range("there is no line to rank " + std::to_string(rank));
}

Outbox& Lines::outbox() {
  if (!outbox_) {
    const std::array shape{static_cast<std::int64_t>(Outbox::kCellCount * kLongest)};
    outbox_ = std::make_unique<Outbox>(endpoint_->empty(shape, DType{kDTypeUInt, 8, 1}));
  }
  return *outbox_;
}

bool Lines::listen(const Deadline& deadline, std::vector<Line*>& found) {
  if (slots_.each == 0) return false;             // of a World of one rank
  found.reserve(found.size() + 2 * slots_.each);  // reserve first: what is taken must not get lost
  try {
    endpoint_->wait_notifies(slots_.messages, 2 * slots_.each, taken_, deadline);
  } catch (const TransferTimeout&) {
    return false;
  } catch (const PeerLost&) {  // the last peer that could notify anything
    return false;
  }
  for (const Endpoint::Notified& note : taken_) {
    if (Line* const line = hear(note)) found.push_back(line);
  }
  return true;
}

void Lines::peek(std::vector<Line*>& found) {
  const std::size_t most = 2 * slots_.each;
  found.reserve(found.size() + most);
  try {
    for (std::size_t taken = 0; taken < most; ++taken) {
      const auto note = endpoint_->find_notify(slots_.messages, most, true);
      if (!note) return;
      if (Line* const line = hear(*note)) found.push_back(line);
    }
  } catch (const PeerLost&) {  // the last peer that could notify anything
  }
}

// The line with new messages; null: the note only reported room, or belongs to no line.
Line* Lines::hear(const Endpoint::Notified& note) {
  const bool is_credit = note.first >= slots_.credits;
  Line* const line = find(note.first - (is_credit ? slots_.credits : slots_.messages));
  if (line == nullptr) return nullptr;  // that rank has given up; if this rank needs it, it asks
  const bool was_over = line->is_over();
  is_credit ? line->has_room(note.second) : line->heard(note.second);
  if (line->is_over() && !was_over) over_.push_back(line);
  return is_credit ? nullptr : line;
}

}  // namespace zerohop::engine::collective
