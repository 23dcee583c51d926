// The pages of doorbell registers (UAR) of an open device. A program maps a page and writes to it;
// this side polls. Real registers take every write; these keep the last one, so whoever sees one
// looks at the doorbell records of all queues that ring there.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/unique_fd.hpp"

namespace zerohop::mlx5sim {

class UarPages {
 public:
  static constexpr std::uint32_t kMost = 512;

  UarPages();  // throws Error
  ~UarPages();
  UarPages(const UarPages&) = delete;
  UarPages& operator=(const UarPages&) = delete;

  std::size_t page_nbytes() const noexcept { return page_nbytes_; }
  std::uint32_t add();  // its number; throws Refused (ENOSPC)
  void remove(std::uint32_t page);
  bool is_there(std::uint32_t page) const noexcept { return page < kMost && used_[page]; }

  // mmap(2) of the page with that offset; MAP_FAILED with errno.
  std::uint64_t offset_of(std::uint32_t page) const noexcept;
  void* map(void* address, std::size_t nbytes, int protection, off_t offset) noexcept;

  // Calls `use` with the number of a queue pair, as often as a register of send queues was found
  // written since the last call.
  template <typename Use>
  void each_send_rung(std::uint32_t page, Use use) {
    for (const std::size_t offset : kSendDoorbells) {
      if (const std::uint64_t value = take(page, offset); value != 0) use(queue_pair_in(value));
    }
  }
  // Whether the register of completion queues was.
  bool was_cq_rung(std::uint32_t page) noexcept;
  // Calls `use` with the number of each page.
  template <typename Use>
  void each(Use use) {
    for (std::uint32_t page = 0; page < end_; ++page) {
      if (used_[page]) use(page);
    }
  }

 private:
  // Two registers of 512 bytes, each of two halves that are written in turn (BlueFlame).
  static constexpr std::size_t kSendDoorbells[] = {0x800, 0x900, 0xa00, 0xb00};

  // The value of a register, which is 0 then.
  std::uint64_t take(std::uint32_t page, std::size_t offset) noexcept;
  // A doorbell begins with the first 8 bytes of an entry.
  static std::uint32_t queue_pair_in(std::uint64_t doorbell) noexcept;

  const std::size_t page_nbytes_;
  UniqueFd memory_;  // mapped by both sides: the program unmaps its pages before it frees them
  std::byte* own_ = nullptr;
  std::array<bool, kMost> used_{};
  std::uint32_t end_ = 0;
};

}  // namespace zerohop::mlx5sim
