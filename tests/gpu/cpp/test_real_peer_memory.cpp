// GPU memory of one process mapped and written by another, on real GPUs: this program runs itself
// again as the other process, and hands it the memory over a socket.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/buffer.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/handles.hpp"
#include "gpu/peer_memory.hpp"
#include "gpu/stream_wait.hpp"
#include "shm/packet.hpp"

namespace zerohop {
namespace {

using Clock = std::chrono::steady_clock;

void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::exit(1);
}

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

Deadline soon() { return Deadline::after(Deadline::Seconds{60}); }

struct Handle {  // a ChunkExport without its descriptor
  Extent extent;
  std::uint64_t buffer_id;
  driver::CudaUuid gpu;
  driver::CudaIpcHandle handle;
};

shm::Packet wait_packet(int socket, std::span<std::byte> into) {
  const Deadline deadline = soon();
  for (;;) {
    if (auto packet = shm::receive_packet(socket, into)) return std::move(*packet);
    pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
    demand(::poll(&entry, 1, deadline.remaining_ms()) == 1, "the other process answers");
  }
}

void send_chunks(int socket, const std::vector<gpu::ChunkExport>& chunks) {
  const std::uint64_t count = chunks.size();
  demand(shm::send_packet(socket, std::as_bytes(std::span(&count, 1))), "the count is sent");
  for (const auto& chunk : chunks) {
    const Handle handle{chunk.extent, chunk.buffer_id, chunk.gpu, chunk.handle};
    demand(shm::send_packet(socket, std::as_bytes(std::span(&handle, 1)),
                            chunk.descriptor ? chunk.descriptor.get() : -1),
           "a chunk is sent");
  }
}

std::vector<gpu::ChunkExport> receive_chunks(int socket) {
  std::uint64_t count = 0;
  wait_packet(socket, std::as_writable_bytes(std::span(&count, 1)));
  std::vector<gpu::ChunkExport> chunks(count);
  for (auto& chunk : chunks) {
    Handle handle{};
    shm::Packet packet = wait_packet(socket, std::as_writable_bytes(std::span(&handle, 1)));
    chunk = {handle.extent, handle.buffer_id, handle.gpu, std::move(packet.fd), handle.handle};
  }
  return chunks;
}

void fill(const gpu::Device& device, std::uint64_t address, unsigned char value,
          std::uint64_t nbytes) {
  const gpu::DeviceGuard guard(device);
  const auto& cuda = device.cuda();
  const gpu::Stream stream = gpu::make_stream(cuda);
  driver::check_cuda(cuda, cuda.memory_set(address, value, nbytes, stream.get()), "memset");
  demand(gpu::wait_stream(device, stream.get(), "memset", soon()), "the memset ends");
}

std::vector<unsigned char> fetch(const gpu::Device& device, std::uint64_t address,
                                 std::uint64_t nbytes) {
  const gpu::DeviceGuard guard(device);
  const auto& cuda = device.cuda();
  const gpu::Stream stream = gpu::make_stream(cuda);
  std::vector<unsigned char> bytes(nbytes);
  driver::check_cuda(cuda, cuda.copy_to_host(bytes.data(), address, nbytes, stream.get()), "copy");
  demand(gpu::wait_stream(device, stream.get(), "copy", soon()), "the copy ends");
  return bytes;
}

int client(int socket, int ordinal) {
  const auto device = gpu::Device::open(driver::libcuda().cuda, ordinal);
  for (;;) {
    auto chunks = receive_chunks(socket);
    if (chunks.empty()) return 0;
    const auto begin = Clock::now();
    auto memory = gpu::PeerMemory::map(device, chunks);
    const double mapping = microseconds_since(begin);
    const auto again = Clock::now();
    {
      const auto twice = gpu::PeerMemory::map(device, chunks);
    }
    std::printf("  mapped %zu chunks, %.0f MiB: %.0f us; once more and unmapped: %.0f us\n",
                chunks.size(), double(memory->extent().end - memory->extent().begin) / 0x1p20,
                mapping, microseconds_since(again));
    std::fflush(stdout);
    const Extent extent = memory->extent();
    fill(*device, memory->at(extent.begin), 0xA1, extent.end - extent.begin);
    fill(*device, memory->at(extent.end - 1), 0xB2, 1);
    memory = nullptr;
    demand(shm::send_packet(socket, std::as_bytes(std::span("done", 4))), "done is said");
  }
}

void check_written(int socket, const gpu::Device& device, std::uint64_t address,
                   std::uint64_t nbytes, const char* what) {
  const auto begin = Clock::now();
  const auto chunks = gpu::export_chunks(device, {address, address + nbytes});
  std::printf("%s: exported %zu chunks in %.0f us\n", what, chunks.size(),
              microseconds_since(begin));
  std::fflush(stdout);
  send_chunks(socket, chunks);
  std::array<std::byte, 4> word{};
  const auto packet = wait_packet(socket, word);
  demand(packet.nbytes == 4, "the client has done it");
  const auto bytes = fetch(device, address, nbytes);
  demand(bytes.front() == 0xA1 && bytes[nbytes / 2] == 0xA1, "the client's bytes are here");
  demand(bytes.back() == (chunks.back().extent.end == address + nbytes ? 0xB2 : 0xA1),
         "and the last one");
}

int owner(const char* program, int client_ordinal) {
  std::array<int, 2> sockets{};
  demand(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets.data()) == 0, "sockets");
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(sockets[0]);
    const std::string fd = std::to_string(sockets[1]);
    const std::string ordinal = std::to_string(client_ordinal);
    ::execl(program, program, fd.c_str(), ordinal.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(sockets[1]);
  const auto device = gpu::Device::open(driver::libcuda().cuda, 0);
  const auto& cuda = device->cuda();
  for (const std::uint64_t nbytes : {std::uint64_t{2} << 20, std::uint64_t{1} << 30}) {
    const auto buffer = gpu::Buffer::create(device, nbytes, soon());
    check_written(sockets[0], *device, buffer->address(), nbytes, "Endpoint.empty");
    driver::CudaAddress plain = 0;
    {
      const gpu::DeviceGuard guard(*device);
      driver::check_cuda(cuda, cuda.memory_allocate(&plain, nbytes), "cuMemAlloc");
    }
    check_written(sockets[0], *device, plain, nbytes, "cudaMalloc");
    const gpu::DeviceGuard guard(*device);
    driver::check_cuda(cuda, cuda.memory_free(plain), "cuMemFree");
  }
  send_chunks(sockets[0], {});
  int status = 0;
  demand(::waitpid(child, &status, 0) == child && status == 0, "the client ends well");
  return 0;
}

}  // namespace
}  // namespace zerohop

int main(int argc, char** argv) {
  try {
    if (argc == 3) return zerohop::client(std::atoi(argv[1]), std::atoi(argv[2]));
    return zerohop::owner(argv[0], argc == 2 ? std::atoi(argv[1]) : 0);
  } catch (const zerohop::Error& error) {
    std::fprintf(stderr, "FAILED: %s\n", error.what());
    return 1;
  }
}
