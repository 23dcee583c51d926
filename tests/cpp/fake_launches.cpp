// What the library's kernels do, on a nonexistent GPU.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>

#include "fake_copies.hpp"

namespace zerohop::testing {

using driver::CudaResult;
using driver::kCudaErrorInvalidValue;
using driver::kCudaSuccess;

namespace {

std::uint64_t now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(since).count());
}

}  // namespace

void FakeCopies::make_read_only(std::uint64_t begin, std::uint64_t nbytes) {
  const std::lock_guard guard(mutex_);
  read_only_[begin] = begin + nbytes;
}

std::map<std::uint64_t, std::uint64_t> FakeCopies::registered() const {
  const std::lock_guard guard(mutex_);
  std::map<std::uint64_t, std::uint64_t> all;
  for (const auto& [begin, pages] : registered_) all[begin] = pages.end;
  return all;
}

CudaResult FakeCopies::register_pages(void* begin, std::size_t nbytes, bool read_only) {
  const std::lock_guard guard(mutex_);
  const auto at = reinterpret_cast<std::uint64_t>(begin);
  const auto overlaps = [&](const auto& ranges, auto end_of) {
    return std::ranges::any_of(ranges, [&](const auto& range) {
      return range.first < at + nbytes && at < end_of(range.second);
    });
  };
  if (!read_only && overlaps(read_only_, std::identity{})) return kCudaErrorInvalidValue;
  // In a later mapping, or mapped twice: both are driver errors.
  if (overlaps(registered_, [](const Pages& pages) { return pages.end; })) {
    return driver::kCudaErrorAlreadyRegistered;
  }
  registered_[at] = {at + nbytes, read_only};
  return kCudaSuccess;
}

CudaResult FakeCopies::unregister_pages(void* begin) {
  const std::lock_guard guard(mutex_);
  return registered_.erase(reinterpret_cast<std::uint64_t>(begin)) == 1 ? kCudaSuccess
                                                                        : kCudaErrorInvalidValue;
}

bool FakeCopies::is_locked(const void* address) const {
  const std::lock_guard guard(mutex_);
  return is_registered(reinterpret_cast<std::uint64_t>(address));
}

bool FakeCopies::is_registered(std::uint64_t address) const {
  const auto after = registered_.upper_bound(address);
  return after != registered_.begin() && address < std::prev(after)->second.end;
}

std::byte* FakeCopies::place(std::uint64_t address, std::size_t nbytes, Use use) {
  if (std::byte* const on_gpu = find(address, nbytes)) return on_gpu;
  auto* const in_host = std::bit_cast<std::byte*>(address);
  if (is_pinned(in_host, nbytes)) return in_host;
  const auto after = registered_.upper_bound(address);
  if (after == registered_.begin()) return nullptr;
  const Pages& pages = std::prev(after)->second;
  const bool good = address + nbytes <= pages.end && (use == Use::read || !pages.read_only);
  return good ? std::bit_cast<std::byte*>(address) : nullptr;
}

bool FakeCopies::reaches(const gpu::Tail& tail) {
  return is_pinned(reinterpret_cast<const void*>(tail.done), 4) && tail.place < gpu::kTails &&
         (tail.slot == 0 || is_registered(tail.slot)) &&
         (tail.mirror == 0 || find(tail.mirror, sizeof(gpu::Note)) != nullptr);
}

void FakeCopies::put_note(std::uint64_t replaced, std::uint64_t mirror, std::uint64_t slot,
                          gpu::Note note) {
  if (replaced != 0) word<std::uint32_t>(replaced).store(0);
  if (mirror != 0) word<gpu::Note>(mirror).store(note);
  if (slot != 0) word<gpu::Note>(slot).store(note);
}

void FakeCopies::put(const gpu::Tail& tail) {
  put_note(tail.replaced, tail.mirror, tail.slot, tail.note);
  word<std::uint32_t>(tail.done).store(tail.number);
}

void FakeCopies::copy_piece(const gpu::CopyPiece& piece) {
  const std::byte* from = place(piece.from, piece.nbytes, Use::read);
  std::byte* to = place(piece.to, piece.nbytes, Use::write);
  if (from == nullptr || to == nullptr) throw std::out_of_range("no memory that a GPU reaches");
  std::memmove(to, from, piece.nbytes);
}

void FakeCopies::copy_ranges(const gpu::FewRanges& ranges) {
  for (std::uint32_t i = 0; i < ranges.count; ++i) {
    copy_piece({ranges.from[i], ranges.to[i], ranges.nbytes[i]});
  }
}

CudaResult FakeCopies::pieces(std::uint64_t list, std::uint32_t count, const gpu::Tail& tail,
                              void* stream) {
  const std::lock_guard guard(mutex_);
  const auto* pieces = reinterpret_cast<const gpu::CopyPiece*>(list);
  const bool last = tail.done != 0;
  if (!is_pinned(pieces, count * sizeof *pieces) || (last && !reaches(tail))) {
    return kCudaErrorInvalidValue;
  }
  return start(stream, [this, pieces, count, last, tail] {
    for (const gpu::CopyPiece& piece : std::span(pieces, count)) copy_piece(piece);
    if (last) put(tail);
  });
}

CudaResult FakeCopies::ranges(const gpu::FewRanges& ranges, const gpu::Tail& tail, void* stream) {
  const std::lock_guard guard(mutex_);
  if (!reaches(tail) || ranges.grain == 0) return kCudaErrorInvalidValue;
  return start(stream, [this, ranges, tail] {
    copy_ranges(ranges);
    put(tail);
  });
}

bool FakeCopies::has_ended(const gpu::Wait& wait, bool late) {
  const auto end = [&](gpu::Note reported) {
    *reinterpret_cast<gpu::WaitEnd*>(find(wait.end, sizeof(gpu::WaitEnd))) = {reported, wait.use};
    return true;
  };
  auto& awaited = word<std::uint32_t>(wait.word);
  if (wait.awaited == gpu::Awaited::number) {
    const std::uint32_t found = awaited.load();
    if (static_cast<std::int32_t>(found - wait.number) >= 0) {
      return end(gpu::make_note(found, gpu::kCame));
    }
  } else {
    auto& noted = word<gpu::Note>(wait.note);
    const gpu::Note note = noted.load();
    if (note != 0 && std::ranges::find(wait.taken, gpu::tag_of(note)) == std::end(wait.taken)) {
      if (wait.reset != 0) noted.store(0);
      return end(note);
    }
    const std::uint32_t value = wait.reset != 0 ? awaited.exchange(0) : awaited.load();
    if (value != 0) return end(gpu::make_note(value, gpu::kCame));
  }
  if (word<std::uint32_t>(wait.cancelled).load() != 0) return end(gpu::kCancelled);
  return late && end(gpu::kTimedOut);
}

CudaResult FakeCopies::forget(std::uint64_t notes, const gpu::NoteAt* list, std::uint32_t count,
                              void* stream) {
  const std::lock_guard guard(mutex_);
  if (!is_pinned(list, count * sizeof *list)) return kCudaErrorInvalidValue;
  return start(stream, [this, notes, list, count] {
    for (const gpu::NoteAt& one : std::span(list, count)) {
      gpu::Note seen = one.note;
      word<gpu::Note>(notes + one.slot * sizeof seen).compare_exchange_strong(seen, 0);
    }
  });
}

CudaResult FakeCopies::reduce(const gpu::ReduceCall& call, void* stream) {
  const std::lock_guard guard(mutex_);
  if (call.type != gpu::GroupType::int32) return kCudaErrorInvalidValue;
  std::vector<const std::byte*> in;
  for (const std::uint64_t each : std::span(call.in, call.count)) {
    in.push_back(find(each, call.nbytes));
  }
  std::byte* const out = find(call.out, call.nbytes);
  if (out == nullptr || std::ranges::find(in, nullptr) != in.end()) return kCudaErrorInvalidValue;
  return start(stream, [in, out, nbytes = call.nbytes] {
    for (std::uint64_t at = 0; at < nbytes; at += sizeof(std::int32_t)) {
      std::uint32_t sum = 0;
      for (const std::byte* each : in) {
        std::uint32_t one;
        std::memcpy(&one, each + at, sizeof one);
        sum += one;
      }
      std::memcpy(out + at, &sum, sizeof sum);
    }
  });
}

CudaResult FakeCopies::wait(const gpu::Wait& wait, void* stream) {
  const std::lock_guard guard(mutex_);
  const bool reached =
      is_pinned(reinterpret_cast<const void*>(wait.word), 4) || is_registered(wait.word);
  if (!reached || find(wait.end, sizeof(gpu::WaitEnd)) == nullptr) return kCudaErrorInvalidValue;
  return start_wait(stream, wait.nanoseconds,
                    [this, wait](bool late) { return has_ended(wait, late); });
}

CudaResult FakeCopies::group(const gpu::GroupCall& call, void* stream) {
  const std::lock_guard guard(mutex_);
  if (!is_pinned(reinterpret_cast<const void*>(call.cancelled), 4)) return kCudaErrorInvalidValue;
  return start_wait(stream, call.nanoseconds, [this, cancelled = call.cancelled](bool) {
    return !collectives_wait || word<std::uint32_t>(cancelled).load() != 0;
  });
}

CudaResult FakeCopies::start_wait(void* stream, std::uint64_t nanoseconds,
                                  const std::function<bool(bool late)>& has_ended) {
  Stream* const on = find_stream(stream);
  if (on == nullptr) return kCudaErrorInvalidValue;
  give(*on, [nanoseconds, has_ended] {
    const auto ready = [nanoseconds, has_ended, began = std::uint64_t{0}]() mutable {
      if (began == 0) began = now();
      return has_ended(now() - began > nanoseconds);
    };
    return Task{[] {}, nullptr, 0, ready};
  });
  return kCudaSuccess;
}

void* FakeCopies::program_stream() {
  void* stream = nullptr;
  (void)create_stream(&stream);
  return stream;
}

bool FakeCopies::run(void* stream) {
  const std::lock_guard guard(mutex_);
  Stream& on = *find_stream(stream);
  return advance(on, on.begun);
}

}  // namespace zerohop::testing
