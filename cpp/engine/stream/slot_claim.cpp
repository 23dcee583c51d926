#include "engine/stream/slot_claim.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::engine {
namespace {

constexpr Deadline::Seconds kPatienceAtEnd{1.0};

struct Parts {
  gpu::PinnedPages copies;
  gpu::Stream stream;
};

}  // namespace

SlotClaim::SlotClaim(std::shared_ptr<GpuBoard> board, std::shared_ptr<const gpu::Device> device,
                     std::uint32_t first, std::uint32_t count, const Deadline& deadline)
    : board_(std::move(board)),
      device_(std::move(device)),
      generation_(fork_generation()),
      first_(first),
      reached_(board_->reach(device_)),
      taken_(count) {
  if (reached_.mirrors) {
    kernels_ = gpu::Kernels::load(device_);
    const gpu::DeviceGuard guard(*device_);
    copies_ = gpu::pin_pages(device_->cuda(), count * (sizeof(gpu::Note) + sizeof(gpu::NoteAt)));
    stream_ = gpu::make_stream(device_->cuda());
  }
  begin_waits();
  try {
    if (reached_.mirrors) forget_taken(deadline);
  } catch (...) {
    end_waits(std::vector<std::uint32_t>(count));
    throw;
  }
}

SlotClaim::~SlotClaim() {
  if (generation_ != fork_generation()) {
    (void)stream_.release();  // CUDA does not survive fork()
    (void)copies_.release();
    return;
  }
  std::vector<std::uint32_t> tags(count());
  try {
    if (reached_.mirrors) {
      const gpu::DeviceGuard guard(*device_);
      tags = find_taken(Deadline::after(kPatienceAtEnd));
      auto parts = std::make_unique<Parts>(std::move(copies_), std::move(stream_));
      gpu::give_back_apart(device_->ordinal(), gpu::destruction(device_, std::move(parts)));
    }
  } catch (const Error&) {
    // The GPU failed, or does not get there: it is unknown what its kernels have taken, and the
    // stream may still write.
    (void)stream_.release();
    (void)copies_.release();
  }
  end_waits(tags);
}

bool SlotClaim::none_taken() const noexcept {
  return std::ranges::all_of(taken_, [](const auto& tags) { return tags == GpuNotes::Tags{}; });
}

void SlotClaim::begin_waits() {
  for (std::uint32_t i = 0; i < count(); ++i) {
    taken_[i] = board_->board().gpu_notes().begin_wait(first_ + i);
  }
}

void SlotClaim::end_waits(const std::vector<std::uint32_t>& tags) noexcept {
  for (std::uint32_t i = 0; i < count(); ++i) {
    board_->board().gpu_notes().end_wait(first_ + i, tags[i]);
  }
}

void SlotClaim::wait(const Deadline& deadline) {
  const std::string what = "the notification slots of kernels on " + device_->facts().device_name();
  if (gpu::wait_stream(*device_, stream_.get(), what, deadline)) return;
  (void)stream_.release();  // it may still be reading and writing
  (void)copies_.release();
  throw TransferTimeout(what + " could not be read in time: a kernel keeps the GPU busy");
}

const gpu::Note* SlotClaim::look_at_mirrors(const Deadline& deadline) {
  const driver::Cuda& cuda = device_->cuda();
  driver::check_cuda(cuda,
                     cuda.copy_to_host(copies_.get(), reached_.notes + first_ * sizeof(gpu::Note),
                                       count() * sizeof(gpu::Note), stream_.get()),
                     "cuMemcpyDtoH of notifications on " + device_->facts().device_name());
  wait(deadline);
  return static_cast<const gpu::Note*>(copies_.get());
}

// The mirrors of notes that the CPU had taken still exist.
void SlotClaim::forget_taken(const Deadline& deadline) {
  const gpu::DeviceGuard guard(*device_);
  const gpu::Note* const mirrors = look_at_mirrors(deadline);
  auto* const list = static_cast<gpu::NoteAt*>(
      static_cast<void*>(static_cast<gpu::Note*>(copies_.get()) + count()));
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < count(); ++i) {
    const bool taken = std::ranges::find(taken_[i], gpu::tag_of(mirrors[i])) != taken_[i].end();
    if (mirrors[i] != 0 && taken) list[found++] = {.note = mirrors[i], .slot = first_ + i};
  }
  kernels_->forget_notes(reached_.notes, list, found, stream_.get());
  if (found > 0) wait(deadline);
}

// For each slot the tag of the note that kernels have taken, 0: none. Reads the board first: a
// note's mirror is written before its slot, so a later copy includes it.
std::vector<std::uint32_t> SlotClaim::find_taken(const Deadline& deadline) {
  const BoardPages& pages = board_->board().pages();
  std::vector<gpu::Note> notes(count());
  for (std::uint32_t i = 0; i < count(); ++i) {
    notes[i] = pages.notes[first_ + i].load(std::memory_order_acquire);
  }
  const gpu::Note* const mirrors = look_at_mirrors(deadline);
  std::vector<std::uint32_t> tags(count());
  for (std::uint32_t i = 0; i < count(); ++i) {
    const bool has_mirror = (gpu::tag_of(notes[i]) & gpu::kForCpuAlone) == 0;
    if (notes[i] != 0 && has_mirror && notes[i] != mirrors[i]) tags[i] = gpu::tag_of(notes[i]);
  }
  return tags;
}

}  // namespace zerohop::engine
