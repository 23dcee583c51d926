#include "engine/checksums.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "base/crc32c.hpp"
#include "base/error.hpp"
#include "base/runs.hpp"
#include "driver/cuda_call.hpp"

namespace zerohop::engine {
namespace {

// Of a GPU each is a copy of its own: so many take a fraction of a second.
constexpr std::uint64_t kMostGpuRuns = 16384;

// Throws RegistrationError.
void check_scattered(const SummedPart& part) {
  const Layout packed = Layout::contiguous(0, part.layout.dtype, part.layout.shape.span());
  const Runs runs(part.layout, packed);
  if (runs.count() == 0 || part.nbytes / runs.run_nbytes() <= kMostGpuRuns) return;
  throw RegistrationError(
      "memory of a GPU in pieces of " + std::to_string(runs.run_nbytes()) +
      " bytes is too scattered for checksums: transfer a contiguous copy, or without integrity");
}

// The contiguous ranges of a part in C order: beside an array without gaps nothing is reordered.
template <typename Each>
void for_each_range(const SummedPart& part, Each each) {
  const Layout packed = Layout::contiguous(0, part.layout.dtype, part.layout.shape.span());
  Runs runs(part.layout, packed);
  if (runs.count() == 0) return;
  runs.skip(part.first / runs.run_nbytes());
  std::uint64_t skip = part.first % runs.run_nbytes();
  std::uint64_t left = part.nbytes;
  for (Run run{}; left > 0 && runs.next(run); skip = 0) {
    const std::uint64_t nbytes = std::min(run.nbytes - skip, left);
    each(run.a_address + skip, nbytes);
    left -= nbytes;
  }
}

// Bytes come in pieces of any length; a checksum ends with every kSummedNbytes.
class Sums {
 public:
  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t taken = std::min<std::size_t>(bytes.size(), kSummedNbytes - filled_);
      sum_ = crc32c(bytes.first(taken), sum_);
      filled_ += taken;
      bytes = bytes.subspan(taken);
      if (filled_ == kSummedNbytes) end();
    }
  }
  std::vector<std::uint32_t> take() {
    if (filled_ > 0) end();
    return std::move(all_);
  }

 private:
  void end() {
    all_.push_back(sum_);
    sum_ = 0;
    filled_ = 0;
  }

  std::vector<std::uint32_t> all_;
  std::uint32_t sum_ = 0;
  std::size_t filled_ = 0;
};

// The lane for as long as it is needed. Copies go through its chunks in turn: while one is summed
// up the next ones are filled.
class Fetch {
 public:
  Fetch(driver::Copier& copier, const gpu::Device& device, Sums& sums)
      : copier_(copier), device_(device), sums_(sums) {
    check(copier_.take(lane_));
  }
  ~Fetch() {
    // After an error copies may still run into the chunks. They run in the order in which they
    // were started: the last mark stands for all.
    if (std::ranges::any_of(filled_, [](std::size_t nbytes) { return nbytes > 0; })) {
      (void)lane_->mark(chunk_);
      (void)lane_->wait(chunk_);
    }
    copier_.give_back(*lane_);
  }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  void add(std::uint64_t address, std::uint64_t nbytes) {
    while (nbytes > 0) {
      const std::size_t room = lane_->chunk_nbytes() - filled_[chunk_];
      const std::size_t step = std::min<std::uint64_t>(nbytes, room);
      std::byte* const into = lane_->chunk(chunk_) + filled_[chunk_];
      filled_[chunk_] += step;
      check(lane_->start_to_host(into, address, step));
      address += step;
      nbytes -= step;
      if (step == room) turn();
    }
  }
  void finish() {
    for (unsigned i = 0; i < filled_.size(); ++i) turn();
  }

 private:
  // Ends the present chunk, and takes what the next one still holds.
  void turn() {
    if (filled_[chunk_] > 0) check(lane_->mark(chunk_));
    chunk_ = (chunk_ + 1) % filled_.size();
    const std::size_t held = filled_[chunk_];
    if (held == 0) return;
    check(lane_->wait(chunk_));
    filled_[chunk_] = 0;
    sums_.add({lane_->chunk(chunk_), held});
  }
  void check(int status) const {
    driver::check_cuda(
        device_.cuda(), status,
        "copying memory of " + device_.facts().device_name() + " to the host for its checksum");
  }

  driver::Copier& copier_;
  const gpu::Device& device_;
  Sums& sums_;
  driver::CopyLane* lane_ = nullptr;
  std::array<std::size_t, driver::CopyLane::kChunks> filled_{};  // bytes in each chunk
  unsigned chunk_ = 0;
};

}  // namespace

std::vector<std::uint32_t> Checksums::of(const SummedPart& part, const gpu::Device* device) {
  Sums sums;
  if (device == nullptr) {
    for_each_range(part, [&](std::uint64_t address, std::uint64_t nbytes) {
      sums.add({reinterpret_cast<const std::byte*>(address), nbytes});
    });
    return sums.take();
  }
  check_scattered(part);
  Fetch fetch(copier_of(*device), *device, sums);
  for_each_range(part,
                 [&](std::uint64_t address, std::uint64_t nbytes) { fetch.add(address, nbytes); });
  fetch.finish();
  return sums.take();
}

driver::Copier& Checksums::copier_of(const gpu::Device& device) {
  auto& copier = copiers_[device.ordinal()];
  if (!copier) {
    copier =
        std::make_unique<gpu::Copier>(gpu::Device::open(device.table(), device.ordinal()), chunk_);
  }
  return *copier;
}

}  // namespace zerohop::engine
