#include "softhca/checked_frame.hpp"

#include <cstring>

#include "base/crc32c.hpp"

namespace zerohop::softhca {
namespace {

template <typename Part>
Part part_at(std::span<const std::byte> frame, std::size_t at) noexcept {
  Part part;
  std::memcpy(&part, &frame[at], sizeof part);
  return part;
}

template <typename Part>
void put_at(std::span<std::byte> frame, std::size_t at, const Part& part) noexcept {
  std::memcpy(&frame[at], &part, sizeof part);
}

}  // namespace

void seal_frame(std::span<std::byte> frame, std::uint32_t number) noexcept {
  const auto prefix = part_at<wire::Prefix>(frame, 0);
  wire::Check check{};
  check.number = number;
  check.payload_bytes = static_cast<std::uint32_t>(frame.size() - prefix.control_bytes);
  put_at(frame, kCheckAt, check);
  check.crc = crc32c(frame);  // computed with this field 0
  put_at(frame, kCheckAt, check);
}

std::size_t checked_nbytes(std::span<const std::byte> begin) noexcept {
  if (begin.size() < kCheckEnd) return kCheckEnd;
  const auto prefix = part_at<wire::Prefix>(begin, 0);
  const auto check = part_at<wire::Check>(begin, kCheckAt);
  if (check.payload_bytes > wire::kCheckedPayload) return 0;
  return std::size_t{prefix.control_bytes} + check.payload_bytes;
}

Finding inspect_frame(std::span<std::byte> frame, std::uint32_t expected) noexcept {
  auto check = part_at<wire::Check>(frame, kCheckAt);
  const std::uint32_t sent = check.crc;
  check.crc = 0;
  put_at(frame, kCheckAt, check);
  if (crc32c(frame) != sent) return Finding::damaged;
  if (wire::before(check.number, expected)) return Finding::repeated;
  return check.number == expected ? Finding::next : Finding::gap;
}

std::span<std::byte> uncheck_frame(std::span<std::byte> frame) noexcept {
  auto prefix = part_at<wire::Prefix>(frame, 0);
  prefix.control_bytes = static_cast<std::uint16_t>(prefix.control_bytes - sizeof(wire::Check));
  prefix.flags = static_cast<std::uint8_t>(prefix.flags & ~wire::kChecked);
  put_at(frame, sizeof(wire::Check), prefix);
  return frame.subspan(sizeof(wire::Check));
}

}  // namespace zerohop::softhca
