// The order in which locks may be taken, in one place: a thread that holds one may wait only for
// those listed later. Test builds check it at every lock (base/locks.hpp). Two locks of the same
// rank are never held together, whatever objects they belong to.
//
// Give a new lock the earliest place that suits what is called under it. Locks that are only tried
// (std::try_to_lock) or waited for with a bound may be taken in any order. The GIL comes before all
// of them, which nothing checks: take it with none held. The exception is endpoint_life: waits
// under it run Python's signal handlers. The mutexes inside structures of libibverbs (ibv_context,
// ibv_cq, ibv_qp) have no rank; the software HCA takes no other lock under them.
#pragma once

namespace zerohop {

enum class Rank : unsigned char {
  // Held for the whole of a call of an Endpoint.
  endpoint_life,  // shared; taken again by a signal handler that closes what its thread waits on
  endpoint_faults,
  endpoint_gpus,

  // Coordination of Endpoint threads with each other and with processes of this host.
  channel,
  expiry,
  local_server,
  registrations,
  gpu_registrations,
  gpu_captures_setup,
  neighbour,
  routes,
  route_books,

  // GPU work: first what enqueues it into streams, then what polls its results.
  captured_waits,
  gpu_notifier,
  gpu_copies_submission,
  gpu_group_entries,
  gpu_group,
  gpu_mappings_mapping,
  host_mappings,
  poller_sources,
  stream_waits_polling,
  stream_waits,
  gpu_copies_polling,
  gpu_notes,
  note_mirrors,

  control,  // taken by waiting streams, to ask whether anybody can still notify

  // Completions of queue pairs, and what they finish.
  poller,
  rail_group,
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
  async_waits,  // in each wake-up of waiting callers: after all locks under which they are woken
  awaited,
  progress,

  // Lookup tables.
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
  gpu_captures,
  gpu_copies,
  route_stats,
  event_log,
  proxy_calls,
  exposures,
  generations,
  own_memories,

  // The software HCA. The data path (post, poll) begins at softhca_queue_pair.
  softhca_devices,
  softhca_control,    // the queue pair table; keeps those that a sweep visits alive
  softhca_doorbells,  // keeps the queue pairs whose doorbells it reads alive
  softhca_queue_pair,
  softhca_shared_receives,
  softhca_copied_atomics,
  softhca_completion_queue,  // its holder only tries the queue pair's lock (lock_hot)
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

  // Process-wide leaves: nothing is taken under these.
  causes,
  refusal,
  recording,
  log_outbox,
  reports,
  descriptors,  // held across fork(2), too
};

}  // namespace zerohop
