// Two endpoints of one process with arrays in a fake GPU's memory, on devices that cannot access
// it: soft0 without its copy function, like an adapter without GPUDirect.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "couple.hpp"
#include "engine/core/device_choice.hpp"
#include "fake_cuda.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::testing {

inline const DType kByte{kDTypeUInt, 8, 1};
using Bytes = std::vector<std::byte>;
constexpr std::size_t kStagingChunk = 4096;  // small: most transfers take many

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

inline engine::EndpointOptions blind_options(const char* name, const FakeCuda& cuda,
                                             const std::vector<std::string>& devices, bool blind,
                                             const engine::MessageWindow& window = {}) {
  engine::EndpointOptions chosen = options(name);
  chosen.messages = window;
  chosen.cuda = cuda.table();
  chosen.gpu.staging_chunk = kStagingChunk;
  if (blind) chosen.open_devices = [devices] { return open_blind(devices); };
  return chosen;
}

inline Bytes counted(std::size_t nbytes, unsigned first) {
  Bytes bytes(nbytes);
  for (std::size_t i = 0; i < nbytes; ++i) {
    bytes[i] = static_cast<std::byte>(first + i * 7 + i / 97);
  }
  return bytes;
}

struct StagedCouple {
  FakeCuda cuda;
  std::vector<std::string> devices{"soft0"};
  bool blind = true;
  engine::MessageWindow window{};  // of the right one
  engine::Endpoint left{blind_options("left", cuda, devices, blind)};
  engine::Endpoint right{blind_options("right", cuda, devices, blind, window)};
  std::shared_ptr<engine::Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<engine::Peer> to_left = right.accept(soon());

  StagedCouple() = default;
  explicit StagedCouple(std::vector<std::string> names) : devices(std::move(names)) {}
  explicit StagedCouple(bool is_blind) : blind(is_blind) {}
  explicit StagedCouple(const engine::MessageWindow& of_right) : window(of_right) {}

  engine::Memory gpu_array(engine::Endpoint& endpoint, const std::vector<std::int64_t>& shape,
                           bool writable = true) {
    Layout layout = Layout::contiguous(0, kByte, shape);
    layout.address = cuda.add_bytes(std::max<std::uint64_t>(layout.nbytes(), 1), std::byte{0xEE});
    return endpoint.register_memory(layout, nullptr, {.writable = writable, .device = "cuda:0"});
  }
  static engine::Memory host_array(engine::Endpoint& endpoint,
                                   const std::vector<std::int64_t>& shape) {
    return endpoint.empty(shape, kByte);
  }
  // All bytes, of either kind, whatever the strides.
  void put(const engine::Memory& memory, const Bytes& bytes) {
    if (!memory.on_host()) return cuda.copies.write(memory.layout().address, bytes);
    std::ranges::copy(bytes, reinterpret_cast<std::byte*>(memory.layout().address));
  }
  Bytes get(const engine::Memory& memory) {
    const std::uint64_t nbytes = memory.layout().nbytes();
    if (!memory.on_host()) return cuda.copies.read(memory.layout().address, nbytes);
    const auto* data = reinterpret_cast<const std::byte*>(memory.layout().address);
    return {data, data + nbytes};
  }
  static void finish(const std::shared_ptr<engine::Transfer>& transfer) {
    REQUIRE(transfer->wait(soon()));
    (void)transfer->result();
  }
};

using engine::Memory;
using engine::Notification;
using engine::Peer;
using engine::RemoteMemory;

inline engine::TransferPtr write(Peer& peer, const Memory& from, const RemoteMemory& to,
                                 std::optional<Notification> notify = {}) {
  const Peer::Pair pair{&from, &to};
  return peer.write({&pair, 1}, {.notify = notify, .require = {}, .timeout = {}});
}

inline engine::TransferPtr read(Peer& peer, const Memory& into, const RemoteMemory& from) {
  const Peer::Pair pair{&into, &from};
  return peer.read({&pair, 1}, {});
}

template <typename Error, typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

inline bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace zerohop::testing
