// CRC32C (Castagnoli; RFC 3720, appendix B.4) of bytes that several threads share: each takes a
// part, and the parts are added up. Bit 31 of a word is the coefficient of x**0.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device::crc {

constexpr u32 kPolynomial = 0x82f63b78;

ZEROHOP_BOTH constexpr u32 times_x(u32 a) { return a >> 1 ^ (a & 1 ? kPolynomial : 0); }

ZEROHOP_BOTH constexpr u32 multiply(u32 a, u32 b) {
  u32 product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if ((a >> bit & 1) != 0) product ^= b;
    b = times_x(b);
  }
  return product;
}

// The state after this number of zero bytes.
ZEROHOP_BOTH constexpr u32 shift(u32 state, u64 nbytes) {
  u32 power = u32{1} << 23;  // x**8
  for (; nbytes != 0; nbytes >>= 1) {
    if ((nbytes & 1) != 0) state = multiply(state, power);
    power = multiply(power, power);
  }
  return state;
}

// The state after those bytes.
ZEROHOP_BOTH inline u32 update(u32 state, const unsigned char* bytes, u64 nbytes) {
  u64 i = 0;
  if (reinterpret_cast<u64>(bytes) % sizeof(u32) == 0) {
    for (; i + sizeof(u32) <= nbytes; i += sizeof(u32)) {
      state ^= *reinterpret_cast<const u32*>(bytes + i);
      for (int bit = 0; bit < 32; ++bit) state = times_x(state);
    }
  }
  for (; i < nbytes; ++i) {
    state ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) state = times_x(state);
  }
  return state;
}

// The contribution of thread `rank` of `size` to the state of all bytes.
ZEROHOP_BOTH inline u32 part(u64 address, u64 nbytes, u32 rank, u32 size) {
  constexpr u64 kAligned = 16;
  const u64 each = ((nbytes + size - 1) / size + kAligned - 1) / kAligned * kAligned;
  const u64 begin = rank * each < nbytes ? rank * each : nbytes;
  const u64 end = nbytes - begin < each ? nbytes : begin + each;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(address + begin);
  // The first part starts with the initial state of CRC32C.
  const u32 state = update(rank == 0 ? ~u32{0} : 0, bytes, end - begin);
  return shift(state, nbytes - end);
}

// A checksum as the value of a notification, which is never 0.
ZEROHOP_BOTH constexpr u32 as_value(u32 checksum) { return checksum != 0 ? checksum : 1; }

}  // namespace zerohop::device::crc
