// The verbs function table: every libibverbs symbol that zerohop calls, named once.
//
// libibverbs fills it by dlopen (load_libibverbs), the software HCA fills it with its own functions
// (softhca/softhca.hpp), and tests fill it with functions that fail on demand. Little code above
// this file knows which (Rail::software()). post_send, post_recv, post_srq_recv, poll_cq and
// req_notify_cq are not here: they are the inline calls of <infiniband/verbs.h> through
// ibv_context::ops, the same for every table.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

#include "driver/copier.hpp"

namespace zerohop::driver {

// X(member, symbol, version that introduced it). Symbols that exist in two versions with different
// structures (IBVERBS_1.0 and 1.1) are requested as 1.1, which the header declares.
#define ZEROHOP_VERBS_REQUIRED(X)                                  \
  X(get_device_list, ibv_get_device_list, "IBVERBS_1.1")           \
  X(free_device_list, ibv_free_device_list, "IBVERBS_1.1")         \
  X(get_device_name, ibv_get_device_name, "IBVERBS_1.1")           \
  X(open_device, ibv_open_device, "IBVERBS_1.1")                   \
  X(close_device, ibv_close_device, "IBVERBS_1.1")                 \
  X(query_device, ibv_query_device, "IBVERBS_1.1")                 \
  X(query_gid, ibv_query_gid, "IBVERBS_1.1")                       \
  X(query_pkey, ibv_query_pkey, "IBVERBS_1.1")                     \
  X(get_async_event, ibv_get_async_event, "IBVERBS_1.1")           \
  X(ack_async_event, ibv_ack_async_event, "IBVERBS_1.1")           \
  X(alloc_pd, ibv_alloc_pd, "IBVERBS_1.1")                         \
  X(dealloc_pd, ibv_dealloc_pd, "IBVERBS_1.1")                     \
  X(dereg_mr, ibv_dereg_mr, "IBVERBS_1.1")                         \
  X(create_comp_channel, ibv_create_comp_channel, "IBVERBS_1.0")   \
  X(destroy_comp_channel, ibv_destroy_comp_channel, "IBVERBS_1.0") \
  X(create_cq, ibv_create_cq, "IBVERBS_1.1")                       \
  X(resize_cq, ibv_resize_cq, "IBVERBS_1.1")                       \
  X(destroy_cq, ibv_destroy_cq, "IBVERBS_1.1")                     \
  X(get_cq_event, ibv_get_cq_event, "IBVERBS_1.1")                 \
  X(ack_cq_events, ibv_ack_cq_events, "IBVERBS_1.1")               \
  X(create_srq, ibv_create_srq, "IBVERBS_1.1")                     \
  X(destroy_srq, ibv_destroy_srq, "IBVERBS_1.1")                   \
  X(create_qp, ibv_create_qp, "IBVERBS_1.1")                       \
  X(modify_qp, ibv_modify_qp, "IBVERBS_1.1")                       \
  X(query_qp, ibv_query_qp, "IBVERBS_1.1")                         \
  X(destroy_qp, ibv_destroy_qp, "IBVERBS_1.1")

// A missing optional symbol leaves a null member: an answer, not an error.
#define ZEROHOP_VERBS_OPTIONAL(X)                          \
  X(query_gid_table, _ibv_query_gid_table, "IBVERBS_1.11") \
  X(reg_mr_iova2, ibv_reg_mr_iova2, "IBVERBS_1.8")         \
  X(reg_dmabuf_mr, ibv_reg_dmabuf_mr, "IBVERBS_1.12")

// What only queue pairs made by DEVX need. The software HCA has no address handles.
#define ZEROHOP_VERBS_OF_ADAPTERS(X)         \
  X(create_ah, ibv_create_ah, "IBVERBS_1.1") \
  X(destroy_ah, ibv_destroy_ah, "IBVERBS_1.1")

struct Verbs {
  std::string provider;  // "libibverbs" or "softhca": for messages only, never for decisions

#define ZEROHOP_VERBS_MEMBER(member, symbol, version) decltype(&::symbol) member = nullptr;
  ZEROHOP_VERBS_REQUIRED(ZEROHOP_VERBS_MEMBER)
  ZEROHOP_VERBS_OPTIONAL(ZEROHOP_VERBS_MEMBER)
  ZEROHOP_VERBS_OF_ADAPTERS(ZEROHOP_VERBS_MEMBER)
#undef ZEROHOP_VERBS_MEMBER

  // These two are macros in <infiniband/verbs.h>, so their members spell out the symbol's type. The
  // exported ibv_query_port fills only the leading part of ibv_port_attr that existed in 1.1: the
  // caller zeroes the rest.
  int (*query_port)(ibv_context*, std::uint8_t port, ibv_port_attr*) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd*, void* address, std::size_t nbytes, int access) = nullptr;

  // Not a symbol of libibverbs: only the software HCA registers memory that the CPU cannot access,
  // and copies it. Null elsewhere.
  ibv_mr* (*reg_copied_mr)(ibv_pd*, std::uint64_t address, std::size_t nbytes, int access,
                           std::shared_ptr<Copier> copier) = nullptr;
};

// The result of loading libibverbs: a table, or the reason why there is none.
struct VerbsLibrary {
  std::shared_ptr<const Verbs> verbs;  // null when the library is absent or too old
  std::string reason;                  // why, and what to install; empty when verbs is set
};

// Loads the library called `soname`. Does not throw for an absent library.
VerbsLibrary load_verbs(const char* soname);

// Loads libibverbs.so.1 on the first call (RTLD_LOCAL | RTLD_NODELETE, never unloaded: providers
// register fork handlers); later calls return the same answer.
const VerbsLibrary& libibverbs();

}  // namespace zerohop::driver
