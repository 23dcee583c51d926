#include "call.hpp"

#include <algorithm>
#include <cerrno>

namespace zerohop::mlx5sim {

const int Call::kAbsent = EINVAL;

ib_uverbs_attr* Call::find(std::uint16_t id) const noexcept {
  for (ib_uverbs_attr& each : std::span(header_.attrs, header_.num_attrs)) {
    if (each.attr_id == id) return &each;
  }
  return nullptr;
}

std::span<const std::byte> Call::bytes(std::uint16_t id) const noexcept {
  const ib_uverbs_attr* found = find(id);
  if (found == nullptr) return {};
  const bool within = found->len <= sizeof found->data;
  const void* at = within ? &found->data : reinterpret_cast<const void*>(found->data);
  return {static_cast<const std::byte*>(at), found->len};
}

std::uint32_t Call::handle(std::uint16_t id) const {
  const ib_uverbs_attr* found = find(id);
  if (found == nullptr) throw Refused{EINVAL};
  return static_cast<std::uint32_t>(found->data);
}

std::span<std::byte> Call::room(std::uint16_t id) noexcept {
  ib_uverbs_attr* found = find(id);
  if (found == nullptr) return {};
  found->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
  return {reinterpret_cast<std::byte*>(found->data), found->len};
}

void Call::out(std::uint16_t id, const void* from, std::size_t nbytes) noexcept {
  const auto to = room(id);
  if (to.empty()) return;
  const std::size_t written = std::min(nbytes, to.size());
  std::memcpy(to.data(), from, written);
  std::ranges::fill(to.subspan(written), std::byte{0});
}

void Call::made(std::uint16_t id, std::uint32_t handle) {
  ib_uverbs_attr* found = find(id);
  if (found == nullptr) throw Refused{EINVAL};
  found->data = handle;
}

}  // namespace zerohop::mlx5sim
