// The order in which locks may be taken, written down once: a thread that holds one may wait only
// for those that come later here. Builds for tests check it at every lock (base/locks.hpp). Two
// locks of one rank are never held together, whoever's they are.
//
// A new lock takes the earliest place that suits what is called under it. What is only tried
// (std::try_to_lock), or waited for with a bound, holds nobody up for ever and may be taken in any
// order. The GIL comes before all of them, which nothing checks: take it with none held, but for
// endpoint_life, under which waits run Python's signal handlers. Without a place are the mutexes in
// structures of libibverbs (ibv_context, ibv_cq, ibv_qp), under which the software HCA takes
// nothing.
#pragma once

namespace zerohop {

enum class Rank : unsigned char {
  // Held during whole calls of an Endpoint.
  endpoint_life,  // shared, and again by a signal handler that closes what its thread waits on
  endpoint_faults,
  endpoint_gpus,

  // What threads of Endpoints have to do with each other, and with processes of this host.
  channel,
  expiry,
  local_server,
  registrations,
  gpu_registrations,
  neighbour,
  routes,
  route_books,

  // Work of GPUs: what puts it into streams, then who looks what has come of it.
  gpu_board,
  gpu_notifier,
  gpu_copies_submission,
  gpu_mappings_mapping,
  host_mappings,
  poller_sources,
  stream_waits_polling,
  stream_waits,
  gpu_copies_polling,
  gpu_notes,
  note_mirrors,

  control,  // asked by streams that wait whether anybody could still notify

  // Completions of queue pairs, and what they end.
  poller,
  path_group,
  peer,
  memory,
  check_line,
  staging_inbox,
  stager,
  copy_queue,
  session,
  session_holds,
  lease,
  transfer,
  poller_sleep,
  async_waits,  // in every wake-up of waiting callers, so behind all that those are woken under
  awaited,
  progress,

  // Tables that are looked into.
  rails,
  shares,
  regions,
  live_regions,
  region_cache,
  staged_memories,
  staging_rings,
  send_pool,
  gpu_choice,
  gpu_mappings,
  gpu_copies,
  route_stats,
  event_log,
  proxy_calls,
  exposures,
  generations,
  own_memories,

  // The software HCA. The data path (post, poll) begins at softhca_queue_pair.
  softhca_devices,
  softhca_control,    // the queue pair table; keeps each alive that a sweep looks at
  softhca_doorbells,  // keeps each queue pair alive whose doorbell it looks at
  softhca_queue_pair,
  softhca_shared_receives,
  softhca_copied_atomics,
  softhca_completion_queue,  // who has it only tries for a queue pair (lock_hot)
  softhca_completion_channel,
  softhca_async_events,
  softhca_memory,
  softhca_timers,
  softhca_progress,

  // The drivers of GPUs.
  gpu_kernels,
  gpu_places,
  host_pages,
  page_locks,
  copier_lanes,
  works_apart,
  executor,
  kept_for_good,

  // Of the process. Nothing is taken under these.
  causes,
  refusal,
  recording,
  log_outbox,
  reports,
  descriptors,  // held by fork(2), too
};

}  // namespace zerohop
