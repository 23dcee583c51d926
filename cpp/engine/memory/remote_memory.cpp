#include "engine/memory/remote_memory.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/wire.hpp"

namespace zerohop::engine {
namespace {

constexpr std::uint32_t kRemoteMemoryMagic = 0x344d5a5a;  // "ZZM4": versioned separately
constexpr std::size_t kMaxDeviceBytes = 64;

void write_dims(WireWriter& out, const Dims& dims) {
  for (const std::int64_t value : dims) out.number(static_cast<std::uint64_t>(value));
}

Dims read_dims(WireReader& in, std::size_t ndim) {
  Dims dims = Dims::zeros(ndim);
  for (std::size_t i = 0; i < ndim; ++i) {
    dims[i] = static_cast<std::int64_t>(in.number<std::uint64_t>());
  }
  return dims;
}

Layout read_layout(WireReader& in) {
  Layout layout;
  layout.address = in.number<std::uint64_t>();
  layout.dtype.code = in.number<std::uint8_t>();
  layout.dtype.bits = in.number<std::uint8_t>();
  layout.dtype.lanes = in.number<std::uint16_t>();
  const std::size_t ndim = in.number<std::uint8_t>();
  if (ndim > Dims::kMax) in.fail(std::to_string(ndim) + " dimensions");
  layout.shape = read_dims(in, ndim);
  layout.strides = read_dims(in, ndim);
  try {
    layout.validate();
  } catch (const std::invalid_argument& error) {
    in.fail(error.what());
  }
  return layout;
}

// How many rail keys are sent: up to the last valid one.
std::size_t count_keys(const RailKeys& keys) {
  std::size_t count = keys.size();
  while (count > 0 && keys[count - 1] == 0) --count;
  return count;
}

RailKeys read_keys(WireReader& in) {
  RailKeys keys{};
  const std::size_t count = in.number<std::uint8_t>();
  if (count > keys.size()) in.fail(std::to_string(count) + " rails");
  for (std::size_t i = 0; i < count; ++i) keys[i] = in.number<std::uint32_t>();
  return keys;
}

void check_inside(const RemoteMemory& memory, const WireReader& in) {
  const Extent extent = memory.layout.extent();
  const bool empty = extent.begin == extent.end;
  if (!empty && (extent.begin < memory.begin || extent.end > memory.end)) {
    in.fail("the array leaves its registered range");
  }
}

}  // namespace

RemoteMemory RemoteMemory::slice(std::span<const Index> indices) const {
  RemoteMemory part = *this;
  part.layout = apply_index(layout, indices);
  return part;
}

RemoteMemory RemoteMemory::range(std::uint64_t address, std::uint64_t nbytes) const {
  RemoteMemory same = *this;
  same.layout = Layout::bytes(address, nbytes);
  return same;
}

std::vector<std::byte> RemoteMemory::to_bytes() const {
  WireWriter out;
  out.number(kRemoteMemoryMagic);
  out.fixed(endpoint);
  const std::size_t count = count_keys(rkeys);
  out.number(static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i) out.number(rkeys[i]);
  out.number(local_key);
  out.number(staged_key);
  out.number(access);
  out.number(begin);
  out.number(end);
  out.text(device, kMaxDeviceBytes);
  out.number(layout.address);
  out.number(layout.dtype.code);
  out.number(layout.dtype.bits);
  out.number(layout.dtype.lanes);
  out.number(static_cast<std::uint8_t>(layout.ndim()));
  write_dims(out, layout.shape);
  write_dims(out, layout.strides);
  return out.take();
}

RemoteMemory RemoteMemory::from_bytes(std::span<const std::byte> bytes) {
  WireReader in(bytes, "RemoteMemory");
  if (in.number<std::uint32_t>() != kRemoteMemoryMagic)
    in.fail("these bytes are not a RemoteMemory");
  RemoteMemory memory;
  in.fixed(memory.endpoint);
  memory.rkeys = read_keys(in);
  memory.local_key = in.number<std::uint64_t>();
  memory.staged_key = in.number<std::uint64_t>();
  memory.access = in.number<std::uint8_t>();
  memory.begin = in.number<std::uint64_t>();
  memory.end = in.number<std::uint64_t>();
  memory.device = in.key(kMaxDeviceBytes);
  const auto plain = [](char c) { return c > ' ' && c < 0x7f; };
  if (!std::ranges::all_of(memory.device, plain)) in.fail("its device name is invalid");
  memory.layout = read_layout(in);
  in.finish();
  check_inside(memory, in);
  return memory;
}

}  // namespace zerohop::engine
