#include "engine/integrity/checksums.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "base/crc32c.hpp"
#include "base/error.hpp"
#include "base/runs.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/kernel_image.hpp"
#include "gpu/piece_source.hpp"

namespace zerohop::engine {
namespace {

// From so many ranges of GPU memory on a kernel gathers them: copying each takes 4 us.
constexpr std::uint64_t kScattered = 64;
// Limit without kernels: so many copies take a fraction of a second.
constexpr std::uint64_t kMostCopies = 16384;
constexpr Deadline::Seconds kPatience{4.0};  // for the GPU

// The contiguous ranges of a part in C order; no order change beside an array without gaps.
class Ranges {
 public:
  explicit Ranges(const SummedPart& part)
      : packed_(Layout::contiguous(0, part.layout.dtype, part.layout.shape.span())),
        runs_(part.layout, packed_),
        left_(runs_.count() == 0 ? 0 : part.nbytes) {
    if (left_ == 0) return;
    runs_.skip(part.first / runs_.run_nbytes());
    skip_ = part.first % runs_.run_nbytes();
  }
  std::uint64_t count() const noexcept { return left_ == 0 ? 0 : left_ / runs_.run_nbytes(); }
  std::uint64_t left() const noexcept { return left_; }  // bytes
  // False: no range is left.
  bool next(std::uint64_t& address, std::uint64_t& nbytes) noexcept {
    Run run{};
    if (left_ == 0 || !runs_.next(run)) return false;
    address = run.a_address + skip_;
    nbytes = std::min(run.nbytes - skip_, left_);
    left_ -= nbytes;
    skip_ = 0;
    return true;
  }

 private:
  const Layout packed_;
  Runs runs_;
  std::uint64_t left_;
  std::uint64_t skip_ = 0;  // of the next run
};

// The next ranges, as many as fit contiguously at `to`.
class RowSource : public gpu::PieceSource {
 public:
  RowSource(Ranges& ranges, gpu::CopyPiece& rest, std::uint64_t to, std::uint64_t room)
      : ranges_(ranges), rest_(rest), to_(to), room_(std::min(room, rest.nbytes + ranges.left())) {}

  std::uint64_t nbytes() const noexcept { return room_; }  // left to fill()
  bool more() const noexcept override { return room_ > 0; }
  std::uint32_t fill(gpu::CopyPiece* into, std::uint32_t room, std::uint64_t most) override {
    std::uint32_t count = 0;
    for (; count < room && more(); ++count) {
      if (rest_.nbytes == 0) ranges_.next(rest_.from, rest_.nbytes);
      rest_.to = to_;
      into[count] = gpu::cut(rest_, std::min(most, room_));
      to_ += into[count].nbytes;
      room_ -= into[count].nbytes;
    }
    return count;
  }

 private:
  Ranges& ranges_;
  gpu::CopyPiece& rest_;  // remainder of one range
  std::uint64_t to_;
  std::uint64_t room_;
};

// Accepts bytes in pieces of any length; a checksum ends after every kSummedNbytes.
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

// Holds the lane while needed. Copies rotate through its chunks: while one is summed the next ones
// are filled.
class Fetch {
 public:
  Fetch(driver::Copier& copier, const gpu::Device& device, Sums& sums)
      : copier_(copier), device_(device), sums_(sums) {
    check(copier_.take(lane_));
  }
  ~Fetch() {
    // After an error, copies may still be writing to the chunks. They run in the order in which
    // they were started: waiting for the last mark covers all.
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
  // Closes the current chunk, and consumes what the next one still holds.
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
  Ranges ranges(part);
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  if (device == nullptr) {
    while (ranges.next(address, nbytes)) {
      sums.add({reinterpret_cast<const std::byte*>(address), nbytes});
    }
    return sums.take();
  }
  if (ranges.count() > kScattered && !gpu::kernel_image().empty()) {
    gpu::Gatherer& gatherer = gatherer_of(*device);
    for (gpu::CopyPiece rest{}; ranges.left() + rest.nbytes > 0;) {
      const auto to = reinterpret_cast<std::uint64_t>(gatherer.data());
      RowSource row(ranges, rest, to, gatherer.nbytes());
      const std::size_t gathered = row.nbytes();
      gatherer.gather(row, gathered, Deadline::after(kPatience));
      sums.add({gatherer.data(), gathered});
    }
    return sums.take();
  }
  check(part.layout, part.nbytes);
  Fetch fetch(copier_of(*device), *device, sums);
  while (ranges.next(address, nbytes)) fetch.add(address, nbytes);
  fetch.finish();
  return sums.take();
}

void Checksums::check(const Layout& layout, std::uint64_t most) {
  if (!gpu::kernel_image().empty()) return;
  const Ranges ranges({layout, 0, std::min(layout.nbytes(), most)});
  if (ranges.count() <= kMostCopies) return;
  throw RegistrationError("GPU memory in pieces of " +
                          std::to_string(ranges.left() / ranges.count()) +
                          " bytes is too scattered for checksums in this build of zerohop, which "
                          "has no GPU kernels: transfer a contiguous copy, or without integrity, "
                          "or build zerohop where the CUDA toolkit is installed");
}

driver::Copier& Checksums::copier_of(const gpu::Device& device) {
  auto& copier = copiers_[device.ordinal()];
  if (!copier) {
    copier =
        std::make_unique<gpu::Copier>(gpu::Device::open(device.table(), device.ordinal()), chunk_);
  }
  return *copier;
}

gpu::Gatherer& Checksums::gatherer_of(const gpu::Device& device) {
  auto& gatherer = gatherers_[device.ordinal()];
  if (!gatherer) {
    gatherer = std::make_unique<gpu::Gatherer>(gpu::Device::open(device.table(), device.ordinal()),
                                               chunk_);
  }
  return *gatherer;
}

}  // namespace zerohop::engine
