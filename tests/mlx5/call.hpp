// One RDMA_VERBS_IOCTL: a method of an object, with attributes in and out (rdma_user_ioctl_cmds.h).
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>

#include "base/error.hpp"

namespace zerohop::mlx5sim {

// Thrown by what carries out commands: the errno of the ioctl.
struct Refused {
  int error;
};

// What the call returns, an errno, or that of what it throws.
template <typename Function>
int errno_of(Function&& call) noexcept try {
  return call();
} catch (const Refused& refused) {
  return refused.error;
} catch (const Error& error) {
  return error.code();
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

class Call {
 public:
  explicit Call(ib_uverbs_ioctl_hdr& header) noexcept : header_(header) {}

  std::uint16_t object() const noexcept { return header_.object_id; }
  std::uint16_t method() const noexcept { return header_.method_id; }

  bool has(std::uint16_t id) const noexcept { return find(id) != nullptr; }
  // Bytes of an input; those of 8 bytes or fewer lie in the attribute itself. None if it is absent.
  std::span<const std::byte> bytes(std::uint16_t id) const noexcept;
  // The value of an input. A shorter one is continued with zeros, as from an older library.
  template <typename Value>
  Value in(std::uint16_t id) const {
    if (!has(id)) throw Refused{kAbsent};
    Value value{};
    const auto from = bytes(id);
    std::memcpy(&value, from.data(), from.size() < sizeof value ? from.size() : sizeof value);
    return value;
  }
  template <typename Value>
  Value in(std::uint16_t id, Value otherwise) const {
    return has(id) ? in<Value>(id) : otherwise;
  }
  // An object or descriptor that is an input.
  std::uint32_t handle(std::uint16_t id) const;

  // Writes an output, as much of it as the caller has room for. Nothing if it did not ask.
  void out(std::uint16_t id, const void* from, std::size_t nbytes) noexcept;
  template <typename Value>
  void out(std::uint16_t id, const Value& value) noexcept {
    out(id, &value, sizeof value);
  }
  // The object or descriptor that was made.
  void made(std::uint16_t id, std::uint32_t handle);
  std::span<std::byte> room(std::uint16_t id) noexcept;  // of an output

 private:
  static const int kAbsent;
  ib_uverbs_attr* find(std::uint16_t id) const noexcept;

  ib_uverbs_ioctl_hdr& header_;
};

}  // namespace zerohop::mlx5sim
