// The functions of librdmacm that zerohop calls, loaded by dlopen as those of libibverbs
// (driver/verbs.hpp). They connect the queue pairs of iWARP devices, and of others on request.
#pragma once

#include <rdma/rdma_cma.h>

#include <memory>
#include <string>

namespace zerohop::driver {

// X(member, symbol, version that introduced it). Each returns -1 and sets errno on failure, or
// NULL.
#define ZEROHOP_RDMACM(X)                                            \
  X(create_event_channel, rdma_create_event_channel, "RDMACM_1.0")   \
  X(destroy_event_channel, rdma_destroy_event_channel, "RDMACM_1.0") \
  X(create_id, rdma_create_id, "RDMACM_1.0")                         \
  X(destroy_id, rdma_destroy_id, "RDMACM_1.0")                       \
  X(bind_addr, rdma_bind_addr, "RDMACM_1.0")                         \
  X(resolve_addr, rdma_resolve_addr, "RDMACM_1.0")                   \
  X(resolve_route, rdma_resolve_route, "RDMACM_1.0")                 \
  X(connect, rdma_connect, "RDMACM_1.0")                             \
  X(listen, rdma_listen, "RDMACM_1.0")                               \
  X(accept, rdma_accept, "RDMACM_1.0")                               \
  X(reject, rdma_reject, "RDMACM_1.0")                               \
  X(init_qp_attr, rdma_init_qp_attr, "RDMACM_1.2")                   \
  X(establish, rdma_establish, "RDMACM_1.2")                         \
  X(set_option, rdma_set_option, "RDMACM_1.0")                       \
  X(get_src_port, rdma_get_src_port, "RDMACM_1.0")                   \
  X(get_cm_event, rdma_get_cm_event, "RDMACM_1.0")                   \
  X(ack_cm_event, rdma_ack_cm_event, "RDMACM_1.0")

struct RdmaCm {
#define ZEROHOP_RDMACM_MEMBER(member, symbol, version) decltype(&::symbol) member = nullptr;
  ZEROHOP_RDMACM(ZEROHOP_RDMACM_MEMBER)
#undef ZEROHOP_RDMACM_MEMBER
};

struct RdmaCmLibrary {
  std::shared_ptr<const RdmaCm> functions;  // null when the library is absent or too old
  std::string reason;                       // why, and what to install; empty when there are
};

// Loads the library called `soname`. Does not throw for an absent library.
RdmaCmLibrary load_rdmacm(const char* soname);

// Loads librdmacm.so.1 on the first call; later calls return the same answer.
const RdmaCmLibrary& librdmacm();

}  // namespace zerohop::driver
