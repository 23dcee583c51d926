// What an Endpoint provides to its Peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "driver/cuda.hpp"
#include "engine/channel/address.hpp"
#include "engine/channel/control_message.hpp"
#include "engine/memory/host_registrations.hpp"
#include "engine/path/local/copy_queue.hpp"
#include "engine/path/local/neighbourhood.hpp"
#include "engine/path/staged/staging.hpp"
#include "engine/path/verbs/striping.hpp"
#include "engine/rail.hpp"
#include "engine/stats/route_books.hpp"

namespace zerohop::engine {

class Checker;
class Peer;
class ProgramStreams;

// tell() sends a control message to that Peer; repair() replaces the queue pair of that rail. Both
// only queue the work for the progress thread.
struct PeerHost {
  EndpointId own_id{};
  Rails rails;
  double default_timeout = 30.0;
  std::uint64_t stripe_bytes = kDefaultStripeBytes;  // larger transfers use several rails
  std::weak_ptr<Neighbourhood> neighbourhood;        // the Endpoint's; none for the reason in
  std::string no_neighbourhood;                      // ... this
  std::weak_ptr<CopyQueue> copy_queue;  // the Endpoint's: its thread holds paths of Peers
  Settings settings{};                  // of the Endpoint, shown with those of the queue pair
  std::shared_ptr<RouteBooks> books;
  std::shared_ptr<HostRegistrations> registrations;
  std::shared_ptr<SendPool> sends;
  std::shared_ptr<StagedMemories> staged_memories;
  std::shared_ptr<Stager> stager;
  std::size_t staging_chunk = 0;  // bytes
  bool integrity = false;         // whether it wants checked transfers
  std::shared_ptr<Checker> checker;
  std::shared_ptr<ProgramStreams> streams;
  std::function<void(const std::shared_ptr<Peer>&, ControlMessage)> tell;
  std::function<void(const std::shared_ptr<Peer>&, RailIndex)> repair;
  std::function<void(const std::shared_ptr<Peer>&)> disconnect;
  std::function<void()> look;  // makes the progress thread poll when no event will wake it
  std::shared_ptr<const driver::Cuda> cuda;  // null: libcuda's, loaded when needed
};

}  // namespace zerohop::engine
