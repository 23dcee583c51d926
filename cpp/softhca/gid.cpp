#include "softhca/gid.hpp"

#include <arpa/inet.h>

#include <cstring>
#include <span>

#include "base/random.hpp"

namespace zerohop::softhca {
namespace {

constexpr std::uint8_t kGidPrefix[4] = {0xfd, 'z', 'h', 1};
constexpr std::size_t kNonceAt = 4;
constexpr std::size_t kNonceBytes = 6;
constexpr std::size_t kAddressAt = 10;
constexpr std::size_t kPortAt = 14;

}  // namespace

ibv_gid make_gid(const sockaddr_in& listener) {
  ibv_gid gid{};
  std::memcpy(gid.raw, kGidPrefix, sizeof kGidPrefix);
  fill_random(std::as_writable_bytes(std::span(gid.raw + kNonceAt, kNonceBytes)));
  std::memcpy(gid.raw + kAddressAt, &listener.sin_addr, sizeof listener.sin_addr);
  std::memcpy(gid.raw + kPortAt, &listener.sin_port, sizeof listener.sin_port);
  return gid;
}

bool is_soft_gid(const ibv_gid& gid) noexcept {
  return std::memcmp(gid.raw, kGidPrefix, sizeof kGidPrefix) == 0;
}

sockaddr_in gid_address(const ibv_gid& gid) noexcept {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  std::memcpy(&address.sin_addr, gid.raw + kAddressAt, sizeof address.sin_addr);
  std::memcpy(&address.sin_port, gid.raw + kPortAt, sizeof address.sin_port);
  return address;
}

bool on_one_host(const ibv_gid& a, const ibv_gid& b) noexcept {
  const in_addr_t first = ::ntohl(gid_address(a).sin_addr.s_addr);
  const in_addr_t second = ::ntohl(gid_address(b).sin_addr.s_addr);
  return first == second || (first >> 24 == IN_LOOPBACKNET && second >> 24 == IN_LOOPBACKNET);
}

}  // namespace zerohop::softhca
