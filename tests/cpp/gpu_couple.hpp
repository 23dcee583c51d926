// Two endpoints of one process with arrays in a fake GPU's memory, each of which maps the other's.
#pragma once

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
               std::shared_ptr<void> owner = nullptr) {
    Layout layout = Layout::contiguous(0, kByte, shape);
    layout.address = cuda.copies.allocate(layout.nbytes(), std::byte{0xEE});
    cuda.add(kind, layout.address, layout.nbytes());
    return endpoint.register_memory(layout, std::move(owner),
                                    {.writable = writable, .device = "cuda:0"});
  }
  void put(const Memory& memory, const Bytes& bytes) {
    cuda.copies.write(memory.layout().address, bytes);
  }
  Bytes get(const Memory& memory) {
    return cuda.copies.read(memory.layout().address, memory.layout().nbytes());
  }
  void hang(bool now) { cuda.copies.hangs = now; }
};

inline std::string error_of(const Peer::Transferring& transfer) {
  REQUIRE(transfer->wait(soon()));
  return message_of<Error>([&] { (void)transfer->result(); });
}

inline void finish(const Peer::Transferring& transfer) {
  REQUIRE(transfer->wait(soon()));
  (void)transfer->result();
}

}  // namespace zerohop::testing
