#include "softhca/scatter.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "softhca/ordering.hpp"

namespace zerohop::softhca {

std::int64_t add_elements(MemoryTable& memory, const ibv_pd* domain,
                          std::span<const ibv_sge> elements, std::uint64_t offset,
                          std::uint64_t nbytes, int access, Pins& pins, IoVector& out) noexcept {
  std::uint64_t added = 0;
  for (const ibv_sge& element : elements) {
    if (added == nbytes || out.full()) break;
    if (offset >= element.length) {
      offset -= element.length;
      continue;
    }
    const std::uint64_t part = std::min<std::uint64_t>(element.length - offset, nbytes - added);
    const std::byte* at =
        memory.pin(element.lkey, domain, element.addr + offset, part, access, pins);
    if (at == nullptr) return -1;
    out.add(at, part);
    added += part;
    offset = 0;
  }
  return static_cast<std::int64_t>(added);
}

bool all_allowed(MemoryTable& memory, const ibv_pd* domain, std::span<const ibv_sge> elements,
                 int access) noexcept {
  Pins pins;
  return std::ranges::all_of(elements, [&](const ibv_sge& element) {
    return element.length == 0 ||
           memory.pin(element.lkey, domain, element.addr, element.length, access, pins) != nullptr;
  });
}

ssize_t send_parts(int socket, IoVector& parts) noexcept {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  [[maybe_unused]] const ordering::Sending sending;
  const iovec& first = *parts.data();
  if (parts.count() == 1) return ::send(socket, first.iov_base, first.iov_len, kFlags);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.count();
  return ::sendmsg(socket, &message, kFlags);
}

ssize_t receive_parts(int socket, IoVector& parts) noexcept {
  const iovec& first = *parts.data();
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.count();
  const ssize_t nbytes = parts.count() == 1
                             ? ::recv(socket, first.iov_base, first.iov_len, MSG_DONTWAIT)
                             : ::recvmsg(socket, &message, MSG_DONTWAIT);
  ordering::after_receive();
  return nbytes;
}

void copy_out(IoVector& vector, const std::byte* from, std::size_t nbytes) noexcept {
  for (iovec* part = vector.data(); nbytes > 0; ++part) {
    const std::size_t step = std::min(part->iov_len, nbytes);
    std::memcpy(part->iov_base, from, step);
    from += step;
    nbytes -= step;
  }
}

void copy_in(IoVector& vector, std::byte* to, std::size_t nbytes) noexcept {
  for (iovec* part = vector.data(); nbytes > 0; ++part) {
    const std::size_t step = std::min(part->iov_len, nbytes);
    std::memcpy(to, part->iov_base, step);
    to += step;
    nbytes -= step;
  }
}

}  // namespace zerohop::softhca
