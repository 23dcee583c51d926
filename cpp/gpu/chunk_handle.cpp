#include "gpu/chunk_handle.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace zerohop::gpu {
namespace {

// Both processes run the same build on one machine.
struct Handle {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t buffer_id;
  driver::CudaUuid gpu;
  driver::CudaIpcHandle handle;
  std::uint64_t by_descriptor;
};
static_assert(sizeof(Handle) == kHandleNbytes);

}  // namespace

std::vector<std::byte> to_handle(const ChunkExport& chunk) {
  const Handle handle{.begin = chunk.extent.begin,
                      .end = chunk.extent.end,
                      .buffer_id = chunk.buffer_id,
                      .gpu = chunk.gpu,
                      .handle = chunk.handle,
                      .by_descriptor = static_cast<bool>(chunk.descriptor)};
  const auto bytes = std::as_bytes(std::span(&handle, 1));
  return {bytes.begin(), bytes.end()};
}

ChunkExport from_handle(std::span<const std::byte> handle, UniqueFd descriptor) {
  Handle from{};
  if (handle.size() == sizeof from) std::memcpy(&from, handle.data(), sizeof from);
  if (from.begin >= from.end || (from.by_descriptor != 0) != static_cast<bool>(descriptor)) {
    throw ProtocolError("a process of this host sent an invalid description of GPU memory");
  }
  return {.extent = {from.begin, from.end},
          .buffer_id = from.buffer_id,
          .gpu = from.gpu,
          .descriptor = std::move(descriptor),
          .handle = from.handle};
}

}  // namespace zerohop::gpu
