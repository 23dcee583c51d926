// Where the payload of an incoming packet goes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "softhca/scatter.hpp"

namespace zerohop::softhca {

struct Landing {
  enum class Kind : std::uint8_t {
    discard,   // nowhere: the packet is not acted upon
    none,      // the packet has no payload
    region,    // registered memory, by key and address
    elements,  // a scatter list of this side, from `offset` on
  };
  Kind kind = Kind::discard;
  int access = 0;  // what the memory must allow
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::span<const ibv_sge> elements{};
  std::uint64_t offset = 0;

  // Adds the bytes [done, done + nbytes) of the payload to `out`; how many (fewer when it is full),
  // or -1 when refused.
  std::int64_t add(MemoryTable& memory, const ibv_pd* domain, std::uint64_t done,
                   std::uint64_t nbytes, Pins& pins, IoVector& out) const noexcept {
    if (kind == Kind::elements) {
      return add_elements(memory, domain, elements, offset + done, nbytes, access, pins, out);
    }
    const Place place = memory.pin(key, domain, address + done, nbytes, access, pins);
    return place ? static_cast<std::int64_t>(out.add(place, nbytes)) : -1;
  }
};

}  // namespace zerohop::softhca
