// Why a device refused a state transition. EINVAL alone names none of the dozen attributes.
#pragma once

#include "rdma/queue_pair.hpp"

namespace zerohop::rdma {

// Throws VerbsError for `result` of ibv_modify_qp(queue_pair, attributes, mask).
[[noreturn]] void throw_refusal(const QueuePair& queue_pair, const ibv_qp_attr& attributes,
                                int mask, int result);

}  // namespace zerohop::rdma
