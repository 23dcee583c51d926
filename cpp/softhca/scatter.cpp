#include "softhca/scatter.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "softhca/ordering.hpp"

namespace zerohop::softhca {
namespace {

// Calls `use` with place and size for each element's part of the bytes [offset, offset + nbytes) of
// the list, until it uses less than it was given. Returns how many bytes were used, or -1 if an
// element is not allowed.
template <typename Use>
std::int64_t walk(MemoryTable& memory, const ibv_pd* domain, std::span<const ibv_sge> elements,
                  std::uint64_t offset, std::uint64_t nbytes, int access, Pins& pins, Use use) {
  std::uint64_t done = 0;
  for (const ibv_sge& element : elements) {
    if (done == nbytes) break;
    if (offset >= element.length) {
      offset -= element.length;
      continue;
    }
    const std::uint64_t part = std::min<std::uint64_t>(element.length - offset, nbytes - done);
    const Place place = memory.pin(element.lkey, domain, element.addr + offset, part, access, pins);
    if (!place) return -1;
    const std::uint64_t used = use(place, part);
    done += used;
    if (used < part) break;
    offset = 0;
  }
  return static_cast<std::int64_t>(done);
}

// False if it is not an aligned word of that size.
template <typename Word>
bool place_word(void* to, const std::byte* from, std::size_t nbytes) noexcept {
  if (nbytes != sizeof(Word) || reinterpret_cast<std::uintptr_t>(to) % sizeof(Word) != 0) {
    return false;
  }
  Word word;
  std::memcpy(&word, from, sizeof word);
  std::atomic_ref(*static_cast<Word*>(to)).store(word, std::memory_order_release);
  return true;
}

// An aligned word is stored whole, after everything placed before it, because the program may poll
// it in memory.
void place(void* to, const std::byte* from, std::size_t nbytes) noexcept {
  if (place_word<std::uint64_t>(to, from, nbytes)) return;
  if (place_word<std::uint32_t>(to, from, nbytes)) return;
  std::memcpy(to, from, nbytes);
}

}  // namespace

std::size_t IoVector::add(const Place& place, std::size_t nbytes) noexcept {
  if (place.copier == nullptr) {
    if (count_ == kMost) return 0;
    add(place.at, nbytes);
    return nbytes;
  }
  bounced_ = true;
  std::size_t added = 0;
  while (added < nbytes && !full()) {
    std::size_t step = nbytes - added;
    const std::byte* host =
        bounce_ != nullptr ? bounce_->reserve(place + added, step, count_, nbytes_) : nullptr;
    ended_ = host == nullptr;
    if (ended_) break;
    add(host, step);
    added += step;
  }
  return added;
}

std::int64_t add_elements(MemoryTable& memory, const ibv_pd* domain,
                          std::span<const ibv_sge> elements, std::uint64_t offset,
                          std::uint64_t nbytes, int access, Pins& pins, IoVector& out) noexcept {
  return walk(memory, domain, elements, offset, nbytes, access, pins,
              [&out](const Place& place, std::size_t part) {
                return out.full() ? 0 : out.add(place, part);
              });
}

Allowed are_allowed(MemoryTable& memory, const ibv_pd* domain, std::span<const ibv_sge> elements,
                    std::uint64_t offset, std::uint64_t nbytes, int access) noexcept {
  Pins pins;
  Allowed answer = Allowed::yes;
  const std::int64_t seen = walk(memory, domain, elements, offset, nbytes, access, pins,
                                 [&answer](const Place& place, std::size_t part) {
                                   if (place.copier != nullptr) answer = Allowed::copied;
                                   return part;
                                 });
  return seen < 0 ? Allowed::no : answer;
}

ssize_t send_parts(int socket, IoVector& parts, std::size_t first, std::size_t end) noexcept {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  [[maybe_unused]] const ordering::Sending sending;
  iovec* begin = parts.data() + first;
  if (end - first == 1) return ::send(socket, begin->iov_base, begin->iov_len, kFlags);
  msghdr message{};
  message.msg_iov = begin;
  message.msg_iovlen = end - first;
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
    place(part->iov_base, from, step);
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
