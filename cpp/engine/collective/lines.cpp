#include "engine/collective/lines.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"

namespace zerohop::engine::collective {

Outbox::Outbox(Memory memory) : memory_(std::move(memory)), pinned_(memory_.pinned()) {}

bool Outbox::has(const Header& header, std::span<const std::byte> payload) const noexcept {
  return !payload.empty() && payload.data() == payload_.data() &&
         payload.size() == payload_.size() && header.label == header_.label &&
         header.what == header_.what && header.emptied == header_.emptied;
}

Memory Outbox::put(const Header& header, std::span<const std::byte> payload) {
  if (!has(header, payload)) {
    last_ = next_;
    next_ = (next_ + 1) % kCellCount;
    uses_[last_].clear();
    auto* const cell = reinterpret_cast<std::byte*>(memory_.layout().address) + last_ * kLongest;
    std::memcpy(cell, &header, sizeof(header));
    if (!payload.empty()) std::memcpy(cell + sizeof(header), payload.data(), payload.size());
    header_ = header;
    payload_ = payload;
  }
  return memory_.range(memory_.layout().address + last_ * kLongest,
                       sizeof(header) + payload.size());
}

Lines::Lines(std::shared_ptr<Endpoint> endpoint, Rank rank, const Slots& slots)
    : endpoint_(std::move(endpoint)), rank_(rank), slots_(slots) {}

Line& Lines::add(Rank rank, std::shared_ptr<Peer> peer, Memory inbox) {
  const Line::Slots there{slots_.messages + rank_, slots_.credits + rank_};
  auto line = std::make_unique<Line>(rank, std::move(peer), std::move(inbox), there);
  return *lines_.emplace(rank, std::move(line)).first->second;
}

Line* Lines::find(Rank rank) const noexcept {
  const auto found = lines_.find(rank);
  return found == lines_.end() ? nullptr : found->second.get();
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

Lines::Heard Lines::listen(const Deadline& deadline) {
  Endpoint::Notified note;
  try {
    note = endpoint_->wait_notify(slots_.messages, 2 * slots_.each, true, deadline);
  } catch (const TransferTimeout&) {
    return {};
  } catch (const PeerLost&) {  // the last one that could tell anything
    return {};
  }
  const bool is_credit = note.first >= slots_.credits;
  Line* const line = find(note.first - (is_credit ? slots_.credits : slots_.messages));
  // It has given up; should this rank come to need it, it asks.
  if (line == nullptr) return {.any = true};
  const bool was_over = line->is_over();
  is_credit ? line->has_room(note.second) : line->heard(note.second);
  if (line->is_over() && !was_over) over_.push_back(line);
  return {.any = true, .line = is_credit ? nullptr : line};
}

}  // namespace zerohop::engine::collective
