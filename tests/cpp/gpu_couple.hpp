// Two endpoints of one process with arrays in a fake GPU's memory: each maps the other's; or, as a
// StagedCouple, on devices that cannot access it: soft0 without its copy function, like an adapter
// without GPUDirect.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "couple.hpp"
#include "engine/core/device_choice.hpp"
#include "fake_cuda.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::testing {

using Bytes = std::vector<std::byte>;
constexpr std::size_t kStagingChunk = 4096;  // small: most transfers take many

inline Bytes counted(std::size_t nbytes, unsigned first) {
  Bytes bytes(nbytes);
  for (std::size_t i = 0; i < nbytes; ++i) {
    bytes[i] = static_cast<std::byte>(first + i * 7 + i / 97);
  }
  return bytes;
}

inline engine::EndpointOptions with_gpu(engine::EndpointOptions chosen, const FakeCuda& cuda) {
  chosen.cuda = cuda.table();
  chosen.gpu.staging_chunk = kStagingChunk;
  return chosen;
}

struct GpuCouple {
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
  engine::Endpoint left;
  engine::Endpoint right;
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());

  explicit GpuCouple(const engine::EndpointOptions& of_left = near("left"),
                     const engine::EndpointOptions& of_right = near("right"))
      : left(with_gpu(of_left, cuda)), right(with_gpu(of_right, cuda)) {}

  Memory array(engine::Endpoint& endpoint, const std::vector<std::int64_t>& shape,
               bool writable = true, gpu::MemoryKind kind = gpu::MemoryKind::plain,
               std::shared_ptr<void> owner = nullptr, int gpu = 0) {
    Layout layout = Layout::contiguous(0, kByte, shape);
    const std::uint64_t nbytes = std::max(layout.nbytes(), std::uint64_t{1});
    layout.address = cuda.copies.allocate(nbytes, std::byte{0xEE});
    cuda.add(kind, layout.address, nbytes);
    cuda.find(layout.address)->ordinal = gpu;
    return endpoint.register_memory(
        layout, std::move(owner), {.writable = writable, .device = "cuda:" + std::to_string(gpu)});
  }
  // One of the left endpoint and one of the right.
  std::pair<Memory, Memory> arrays(const std::vector<std::int64_t>& shape) {
    return {array(left, shape), array(right, shape)};
  }
  std::pair<Memory, Memory> host_arrays(const std::vector<std::int64_t>& shape) {
    return {host_array(left, shape), host_array(right, shape)};
  }
  // All bytes, of a GPU or the host, whatever the strides.
  void put(const Memory& memory, const Bytes& bytes) {
    if (!memory.on_host()) return cuda.copies.write(memory.layout().address, bytes);
    std::ranges::copy(bytes, reinterpret_cast<std::byte*>(memory.layout().address));
  }
  Bytes get(const Memory& memory) {
    const std::uint64_t nbytes = memory.layout().nbytes();
    if (!memory.on_host()) return cuda.copies.read(memory.layout().address, nbytes);
    const auto* data = reinterpret_cast<const std::byte*>(memory.layout().address);
    return {data, data + nbytes};
  }
  void hang(bool now) { cuda.copies.hangs = now; }
};

// Arrays in host memory, too.
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
    std::memset(reinterpret_cast<void*>(memory.layout().address), 0xEE, memory.layout().nbytes());
    return memory;
  }
  std::string why_not(const Memory& ours, const Memory& theirs) const {
    return to_right->route(ours, theirs.remote()).reason;
  }
  std::uint64_t by_device() const { return to_right->rails().at(0)->stats().work_requests; }
  // How many registrations of host pages contain the address.
  bool is_locked(const Memory& memory) const {
    const std::uint64_t at = memory.layout().address;
    return std::ranges::any_of(cuda.copies.registered(), [&](const auto& range) {
      return range.first <= at && at < range.second;
    });
  }
  bool is_let_go(const Memory& memory) const {
    return eventually([&] { return !is_locked(memory); });
  }
};

inline std::vector<engine::DeviceChoice> open_blind(const std::vector<std::string>& names) {
  auto table = std::make_shared<driver::Verbs>(*softhca::verbs());
  table->reg_copied_mr = nullptr;
  table->reg_dmabuf_mr = nullptr;
  std::vector<engine::DeviceChoice> devices;
  for (const std::string& name : names) {
    devices.push_back(
        {rdma::Device::open(table, softhca::canonical_name(name)), "a test blinds it"});
  }
  return devices;
}

inline engine::EndpointOptions blind(const char* name,
                                     const std::vector<std::string>& devices = {"soft0"}) {
  engine::EndpointOptions chosen = options(name);
  chosen.open_devices = [devices] { return open_blind(devices); };
  return chosen;
}

struct StagedCouple : GpuCouple {
  explicit StagedCouple(const std::vector<std::string>& devices = {"soft0"})
      : GpuCouple(blind("left", devices), blind("right", devices)) {}
  explicit StagedCouple(const engine::MessageWindow& of_right)
      : GpuCouple(blind("left"), with(of_right)) {}

 private:
  static engine::EndpointOptions with(const engine::MessageWindow& window) {
    engine::EndpointOptions chosen = blind("right");
    chosen.messages = window;
    return chosen;
  }
};

// soft0 copies by itself.
struct CopiedCouple : GpuCouple {
  CopiedCouple() : GpuCouple(options("left"), options("right")) {}
};

}  // namespace zerohop::testing
