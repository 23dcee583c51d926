#include "engine/notify/gpu_notes.hpp"

#include <algorithm>

namespace zerohop::engine {

bool GpuNotes::Slot::knows(std::uint32_t tag) const noexcept {
  return std::ranges::find(taken, tag) != taken.end();
}

void GpuNotes::Slot::remember(std::uint32_t tag) noexcept {
  taken[next] = tag;
  next = (next + 1) % taken.size();
}

gpu::Note GpuNotes::find(std::uint32_t slot) const noexcept {
  const gpu::Note note = pages_.notes[slot].load(std::memory_order_acquire);
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return note;
  const Slot& known = found->second;
  const bool for_streams = known.streams > 0 && (gpu::tag_of(note) & gpu::kForCpuAlone) == 0;
  return for_streams || known.knows(gpu::tag_of(note)) ? 0 : note;
}

std::uint32_t GpuNotes::peek(std::uint32_t slot) const noexcept {
  if (is_empty(slot)) return 0;
  const std::lock_guard lock(mutex_);
  return gpu::value_of(find(slot));
}

// A later note may replace the one being taken, but only before it was seen.
std::uint32_t GpuNotes::take(std::uint32_t slot) {
  if (is_empty(slot)) return 0;
  const std::lock_guard lock(mutex_);
  gpu::Note note = find(slot);
  while (gpu::value_of(note) != 0 && !pages_.notes[slot].compare_exchange_weak(note, 0)) {
    note = find(slot);
  }
  if (gpu::value_of(note) == 0) return 0;
  slots_[slot].remember(gpu::tag_of(note));
  return gpu::value_of(note);
}

GpuNotes::Tags GpuNotes::begin_wait(std::uint32_t slot) {
  const std::lock_guard lock(mutex_);
  Slot& known = slots_[slot];
  ++known.streams;
  const gpu::Note note = pages_.notes[slot].load(std::memory_order_acquire);
  const bool is_replaced = note != 0 && gpu::value_of(note) == 0;
  if (is_replaced && !known.knows(gpu::tag_of(note))) known.remember(gpu::tag_of(note));
  return known.taken;
}

void GpuNotes::end_wait(std::uint32_t slot, std::uint32_t tag) {
  const std::lock_guard lock(mutex_);
  Slot& known = slots_[slot];
  if (tag != 0) known.remember(tag);
  gpu::Note note = pages_.notes[slot].load(std::memory_order_acquire);
  if (tag != 0 && gpu::tag_of(note) == tag) pages_.notes[slot].compare_exchange_strong(note, 0);
  // The rest belongs to the CPU again: threads that wait among many slots must look.
  if (--known.streams == 0) pages_.announce();
}

}  // namespace zerohop::engine
