// Two endpoints of one process with arrays in a fake GPU's memory; each maps the other's.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "staged_couple.hpp"

namespace zerohop::testing {

inline engine::EndpointOptions near(const char* name, const FakeCuda& cuda) {
  engine::EndpointOptions chosen = options(name);
  chosen.p2p = true;
  chosen.cuda = cuda.table();
  return chosen;
}

struct GpuCouple {
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
  engine::Endpoint left{near("left", cuda)};
  engine::Endpoint right{near("right", cuda)};
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());

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
  void put(const Memory& memory, const Bytes& bytes) {
    cuda.copies.write(memory.layout().address, bytes);
  }
  Bytes get(const Memory& memory) {
    return cuda.copies.read(memory.layout().address, memory.layout().nbytes());
  }
  void hang(bool now) { cuda.copies.hangs = now; }
};

inline std::string error_of(const engine::TransferPtr& transfer) {
  REQUIRE(transfer->wait(soon()));
  return message_of<Error>([&] { (void)transfer->result(); });
}

inline void finish(const engine::TransferPtr& transfer) {
  REQUIRE(transfer->wait(soon()));
  (void)transfer->result();
}

}  // namespace zerohop::testing
