// The destination of an incoming packet's payload.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "softhca/scatter.hpp"

namespace zerohop::softhca {

struct Landing {
  enum class Kind : std::uint8_t {
    discard,   // nowhere: the packet is ignored
    none,      // the packet has no payload
    region,    // registered memory, by key and address
    elements,  // a scatter list of this side, from `offset` on
  };
  Kind kind = Kind::discard;
  int access = 0;  // rights that the memory must have
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::span<const ibv_sge> elements{};
  std::uint64_t offset = 0;

  // Adds the bytes [done, done + nbytes) of the payload to `out`. Returns how many (fewer if it is
  // full), or -1 if refused.
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
