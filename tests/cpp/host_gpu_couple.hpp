// Two endpoints of one process with arrays in a fake GPU's memory and in host memory.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "gpu_couple.hpp"

namespace zerohop::testing {

struct HostGpuCouple : GpuCouple {
  // Separate pages, as NumPy uses for large arrays.
  struct Pages {
    explicit Pages(std::size_t wanted)
        : nbytes((wanted + 4095) & ~std::size_t{4095}),
          data(static_cast<std::byte*>(::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
    ~Pages() { ::munmap(data, nbytes); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data); }
    std::size_t nbytes;
    std::byte* data;
  };

  static Memory part(engine::Endpoint& endpoint, const std::shared_ptr<Pages>& pages,
                     std::size_t offset, const std::vector<std::int64_t>& shape,
                     bool writable = true) {
    Layout layout = Layout::contiguous(pages->address() + offset, kByte, shape);
    return endpoint.register_memory(layout, pages, {.writable = writable});
  }
  static Memory plain(engine::Endpoint& endpoint, const std::vector<std::int64_t>& shape,
                      bool writable = true) {
    const Layout layout = Layout::contiguous(0, kByte, shape);
    return part(endpoint, std::make_shared<Pages>(layout.nbytes()), 0, shape, writable);
  }
  static Memory mapped(engine::Endpoint& endpoint, const std::vector<std::int64_t>& shape) {
    Memory memory = endpoint.empty(shape, kByte);
    fill(memory, Bytes(memory.layout().nbytes(), std::byte{0xEE}));
    return memory;
  }
  static std::byte* data(const Memory& memory) {
    return reinterpret_cast<std::byte*>(memory.layout().address);
  }
  static void fill(const Memory& memory, const Bytes& bytes) {
    std::ranges::copy(bytes, data(memory));
  }
  static Bytes content(const Memory& memory) {
    return {data(memory), data(memory) + memory.layout().nbytes()};
  }

  std::string why_not(const Memory& ours, const Memory& theirs) const {
    return to_right->route(ours, theirs.remote()).reason;
  }
  std::uint64_t by_device() const { return to_right->rails().path(0)->stats().work_requests; }
  // How many registrations of host pages contain the address.
  bool is_locked(const Memory& memory) const {
    const std::uint64_t at = memory.layout().address;
    return std::ranges::any_of(cuda.copies.registered(), [&](const auto& range) {
      return range.first <= at && at < range.second;
    });
  }
  bool is_let_go(const Memory& memory) const {
    const Deadline end = soon();
    while (is_locked(memory)) {
      if (end.passed()) return false;
    }
    return true;
  }
};

inline const engine::TransferOptions kByP2p{.notify = {}, .require = "p2p", .timeout = {}};

}  // namespace zerohop::testing
