// The first bytes on a data connection, from either side: the sender, and the peer it expects.
//
// A connection is kept only if every field matches what the owners of the two queue pairs set.
// Queue pair numbers, packet sequence numbers and six bytes of each GID are random, so a stranger
// who has not seen the exchange cannot produce a matching hello.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace zerohop::softhca {

inline constexpr std::uint32_t kPsnUnknown = 0xffffffff;  // the sender is in RTR, without a PSN

struct Hello {
  std::uint8_t magic[8];
  ibv_gid source;
  ibv_gid destination;
  std::uint32_t source_qp;
  std::uint32_t destination_qp;
  std::uint32_t source_psn;       // sq_psn of the sender, or kPsnUnknown
  std::uint32_t destination_psn;  // rq_psn of the sender: the receiver's sq_psn
  std::uint64_t zero;
};
static_assert(sizeof(Hello) == 64);

// The last byte is the version of the whole connection protocol (wire.hpp): from 2 on frames may be
// checked. Endpoints detect another version earlier, with a clear error: engine::kControlVersion
// rises with it.
inline constexpr std::uint8_t kHelloMagic[8] = {'z', 'e', 'r', 'o', 'h', 'o', 'p', 2};

}  // namespace zerohop::softhca
