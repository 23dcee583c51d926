#include "uar.hpp"

#include <endian.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "call.hpp"

namespace zerohop::mlx5sim {
namespace {

constexpr std::size_t kCqDoorbell = 0x20;
constexpr std::uint64_t kOffsetOfFirst = 1ull << 32;

}  // namespace

UarPages::UarPages()
    : page_nbytes_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
      memory_(UniqueFd::open([] { return ::memfd_create("mlx5sim-uar", MFD_CLOEXEC); })) {
  if (!memory_ || ::ftruncate(memory_.get(), static_cast<off_t>(kMost * page_nbytes_)) != 0) {
    throw Error(errno_message("memfd_create failed", errno), errno);
  }
  void* own =
      ::mmap(nullptr, kMost * page_nbytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (own == MAP_FAILED) throw Error(errno_message("mmap failed", errno), errno);
  own_ = static_cast<std::byte*>(own);
}

UarPages::~UarPages() { ::munmap(own_, kMost * page_nbytes_); }

std::uint32_t UarPages::add() {
  const auto found = std::ranges::find(used_, false);
  if (found == used_.end()) throw Refused{ENOSPC};
  *found = true;
  const auto page = static_cast<std::uint32_t>(found - used_.begin());
  end_ = std::max(end_, page + 1);
  return page;
}

void UarPages::remove(std::uint32_t page) {
  each_send_rung(page, [](std::uint32_t) {});  // the next user begins with silent registers
  was_cq_rung(page);
  used_[page] = false;
}

std::uint64_t UarPages::offset_of(std::uint32_t page) const noexcept {
  return kOffsetOfFirst + page * page_nbytes_;
}

void* UarPages::map(void* address, std::size_t nbytes, int protection, off_t offset) noexcept {
  const auto page = (static_cast<std::uint64_t>(offset) - kOffsetOfFirst) / page_nbytes_;
  if (nbytes != page_nbytes_ || page >= kMost || !used_[page]) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  // libmlx5 asks for pages to be written only. Kernels of a GPU write there, too: its driver locks
  // memory that is read as well.
  void* mapped = ::mmap(address, nbytes, protection | PROT_READ, MAP_SHARED, memory_.get(),
                        static_cast<off_t>(page * page_nbytes_));
  if (mapped != MAP_FAILED) ::madvise(mapped, nbytes, MADV_DONTFORK);  // as with real registers
  return mapped;
}

std::uint64_t UarPages::take(std::uint32_t page, std::size_t offset) noexcept {
  auto& word = *reinterpret_cast<std::uint64_t*>(own_ + page * page_nbytes_ + offset);
  const std::atomic_ref value(word);
  if (value.load(std::memory_order_relaxed) == 0) return 0;
  // Acquire: what was written before the doorbell is visible. Cleared before the records are read,
  // so a later announcement rings again.
  return value.exchange(0, std::memory_order_acq_rel);
}

std::uint32_t UarPages::queue_pair_in(std::uint64_t doorbell) noexcept {
  std::array<std::uint32_t, 2> words;
  std::memcpy(words.data(), &doorbell, sizeof doorbell);
  return be32toh(words[1]) >> 8;
}

bool UarPages::was_cq_rung(std::uint32_t page) noexcept { return take(page, kCqDoorbell) != 0; }

}  // namespace zerohop::mlx5sim
