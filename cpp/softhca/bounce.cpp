#include "softhca/bounce.hpp"

#include <algorithm>
#include <cerrno>
#include <span>

namespace zerohop::softhca {

void Bounce::begin(Direction direction) noexcept {
  direction_ = direction;
  count_ = 0;
  ready_ = 0;
  constexpr std::size_t kLine = 64;  // vectors begin at a cache line of their chunk
  used_ = (used_ + kLine - 1) & ~(kLine - 1);
}

bool Bounce::take_lane(const std::shared_ptr<driver::Copier>& copier) noexcept {
  if (lane_ != nullptr && copier_ == copier) return true;
  if (count_ > 0) return false;  // the vector has parts in the present lane
  drain();
  if (error_ != 0 || !works(inwards_.take() ? 0 : ENOMEM)) return false;
  if (!works(copier->take(lane_))) return false;
  copier_ = copier;
  chunk_ = 0;
  used_ = 0;
  return true;
}

void Bounce::mark() noexcept {
  if (!started_) return;
  started_ = false;
  marked_[chunk_] = true;
  last_ = chunk_;
  works(lane_->mark(chunk_));
}

bool Bounce::next_chunk() noexcept {
  mark();
  chunk_ = (chunk_ + 1) % kChunks;
  used_ = 0;
  if (marked_[chunk_]) works(lane_->wait(chunk_));
  marked_[chunk_] = false;
  return error_ == 0;
}

// Inwards a vector has a single chunk, or the rest of one: the requested bytes mostly arrive in
// several steps, and only received bytes are copied. Outwards it has all chunks, each once.
bool Bounce::open_room(std::size_t nbytes, std::size_t part) noexcept {
  const std::size_t whole = lane_->chunk_nbytes();
  const std::size_t room = whole - std::min(used_, whole);
  if (direction_ == Direction::in) {
    const std::size_t worth_it = std::min(nbytes, whole / 4);
    return count_ > 0 ? room > 0 : room >= worth_it || next_chunk();
  }
  if (room > 0) return true;
  if (chunk_ + 1 == kChunks) return false;
  end_[chunk_] = part;
  return next_chunk();
}

std::byte* Bounce::reserve(const Place& place, std::size_t& nbytes, std::size_t part,
                           std::size_t at) noexcept {
  if (error_ != 0 || !take_lane(*place.copier) || !open_room(nbytes, part)) return nullptr;
  nbytes = std::min(nbytes, lane_->chunk_nbytes() - used_);
  std::byte* host = lane_->chunk(chunk_) + used_;
  const auto device = reinterpret_cast<std::uint64_t>(place.at);
  if (direction_ == Direction::out) {
    started_ = true;
    if (!works(lane_->start_to_host(host, device, nbytes))) return nullptr;
  } else {
    inwards_->pieces[count_] = {host, device, nbytes, at};
  }
  ++count_;
  used_ += nbytes;
  return host;
}

std::size_t Bounce::ready(std::size_t parts) noexcept {
  if (error_ != 0) return 0;
  if (count_ == 0) return parts;  // no part lies in a chunk
  if (started_) {                 // first call: the last chunk is complete
    end_[chunk_] = parts;
    mark();
  }
  if (error_ != 0 || !works(lane_->wait(ready_))) return 0;
  marked_[ready_] = false;
  return end_[ready_++];
}

void Bounce::land(std::size_t nbytes, Pins& pins) noexcept {
  if (count_ == 0) return;
  used_ = static_cast<std::size_t>(inwards_->pieces[0].host - lane_->chunk(chunk_));
  for (const Piece& piece : std::span(inwards_->pieces).first(count_)) {
    if (piece.at >= nbytes || error_ != 0) break;
    const std::size_t step = std::min(piece.nbytes, nbytes - piece.at);
    started_ = true;
    works(lane_->start_to_device(piece.device, piece.host, step));
    used_ = static_cast<std::size_t>(piece.host - lane_->chunk(chunk_)) + step;
  }
  count_ = 0;
  if (started_ && !inwards_->pins.adopt(pins))
    drain();  // no room for more pins: wait until no copy needs them
}

// Also after an error, because earlier copies may still run.
void Bounce::drain() noexcept {
  if (lane_ == nullptr) return;
  mark();
  // Copies run in the order in which they were started, so the last mark covers all.
  if (std::ranges::find(marked_, true) != marked_.end()) works(lane_->wait(last_));
  marked_ = {};
  copier_->give_back(*lane_);
  lane_ = nullptr;
  copier_.reset();
  inwards_->pins.release();
  inwards_.give_back();
}

int Bounce::settle() noexcept {
  drain();
  const int error = error_;
  error_ = 0;
  return error;
}

}  // namespace zerohop::softhca
