#include "engine/core/endpoint.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/report.hpp"
#include "base/ticks.hpp"
#include "base/trace.hpp"
#include "engine/control/control_host.hpp"
#include "engine/core/device_choice.hpp"
#include "engine/core/endpoint_settings.hpp"
#include "engine/memory/cuda_table.hpp"
#include "engine/notify/slots.hpp"
#include "softhca/device_faults.hpp"

namespace zerohop::engine {
namespace {

std::string default_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + ":" + std::to_string(::getpid());
}

// What all Peers of an Endpoint share; their messages go through its Control.
std::shared_ptr<const Peer::Host> with_words_to(const std::weak_ptr<Control>& weak,
                                                Peer::Host host) {
  host.tell = [weak](const std::shared_ptr<Peer>& peer, ControlMessage message) {
    if (auto control = weak.lock()) control->tell(peer, std::move(message));
  };
  host.repair = [weak](const std::shared_ptr<Peer>& peer, RailIndex rail) {
    if (auto control = weak.lock()) control->repair(peer, rail);
  };
  host.disconnect = [weak](const std::shared_ptr<Peer>& peer) {
    if (auto control = weak.lock()) control->disconnect(peer, "close() was called");
  };
  host.look = [weak] {
    if (auto control = weak.lock()) control->look();
  };
  return std::make_shared<const Peer::Host>(std::move(host));
}

}  // namespace

Endpoint::Endpoint(const EndpointOptions& options)
    : options_(options), generation_(fork_generation()) {
  trace::open();
  ticks::open();
  services_.board = std::make_shared<Board>();
  open_rails();
  drivers_ = Control::make_drivers();
  open_neighbourhood();
  note_mirrors_ = std::make_shared<NoteMirrors>(
      services_.board, neighbourhood_ ? neighbourhood_->exposures() : nullptr);
  gpu_board_ = std::make_shared<GpuBoard>(services_.board, note_mirrors_);
  stager_ = std::make_shared<Stager>(services_.poller);
  checker_ = std::make_shared<Checker>(options_.gpu.staging_chunk, own_memories_);
  streams_ = std::make_shared<ProgramStreams>(options_.cuda, options_.timeout);
  registrations_ = std::make_shared<HostRegistrations>(
      rails_, neighbourhood_ ? neighbourhood_->exposures() : nullptr, live_regions_);
  address_.name = options_.name.empty() ? default_name() : options_.name;
  address_.host = control_host(rails_.front()->device(), options_.host);
  const Control::Lonely lonely(services_.board, &services_.board->pages().lonely);
  control_ = Control::start(address_, key_, rails_, services_.poller, peer_maker(), neighbourhood_,
                            lonely, drivers_);
  control_->limit_peers(options_.max_peers);
  streams_->serve(stream_host());
}

void Endpoint::open_rails() {
  Poller::Devices devices;
  auto choices = options_.open_devices
                     ? options_.open_devices()
                     : choose_devices(options_.device, options_.port, options_.preference);
  for (auto& [device, reason] : choices) {
    const auto index = static_cast<RailIndex>(rails_.size());
    rails_.push_back(std::make_shared<Rail>(
        index, rdma::ProtectionDomain::create(device), std::move(reason),
        connection_manager(*device, options_.rdma_cm, options_.queue_pair.traffic_class)));
    if (rails_.back()->software()) {
      fault_counts_.push_back(softhca::fault_counts(device->context()));
    }
    address_.device += (index > 0 ? "," : "") + device->name();
    devices.push_back(std::move(device));
  }
  if (!options_.faults.text().empty()) put_faults(options_.faults);
  const Poller::Sleepers sleepers(services_.board, &services_.board->sleepers());
  const Poller::Silent silent(services_.board, &services_.board->pages().kernels);
  services_.poller =
      std::make_shared<Poller>(devices, options_.spin, options_.interrupt, sleepers, silent,
                               std::make_shared<AsyncWaits>(services_.board));
  services_.options = options_.queue_pair;
  services_.messages = options_.messages;
  for (const auto& rail : rails_) {
    services_.receives.push_back(ReceivePool::create(*rail, options_.messages, *services_.poller));
  }
  sends_ = std::make_shared<SendPool>(rails_, options_.messages.nbytes);
}

// Optional: without it, all transfers go through devices.
void Endpoint::open_neighbourhood() {
  if (!options_.p2p) {
    no_neighbourhood_ =
        options_.faults.any()
            ? "this Endpoint injects faults, for which p2p=0 is the default: set p2p=1 to have both"
            : "this Endpoint has p2p=0 (or ZEROHOP_P2P=0) instead of the default, 1";
    return;
  }
  try {
    neighbourhood_ = std::make_shared<Neighbourhood>(services_.board, drivers_);
    copy_queue_ = std::make_shared<CopyQueue>();
  } catch (const Error& error) {
    no_neighbourhood_ = error.what();
  }
}

Control::MakePeer Endpoint::peer_maker() const {
  const Peer::Host host{.own_id = address_.id,
                        .rails = rails_,
                        .default_timeout = options_.timeout,
                        .stripe_bytes = options_.stripe_bytes,
                        .neighbourhood = neighbourhood_,
                        .no_neighbourhood = no_neighbourhood_,
                        .copy_queue = copy_queue_,
                        .settings = settings_of(options_, address_.host),
                        .books = books_,
                        .registrations = registrations_,
                        .sends = sends_,
                        .staged_memories = staged_memories_,
                        .stager = stager_,
                        .staging_chunk = options_.gpu.staging_chunk,
                        .integrity = options_.integrity,
                        .checker = checker_,
                        .streams = streams_,
                        .tell = {},
                        .repair = {},
                        .disconnect = {},
                        .look = {},
                        .cuda = options_.cuda};
  struct Shared {
    std::once_flag made;
    std::shared_ptr<const Peer::Host> host;
  };
  return [host, services = services_, shared = std::make_shared<Shared>()](
             const std::weak_ptr<Control>& control, Peer::Identity identity) {
    std::call_once(shared->made, [&] { shared->host = with_words_to(control, host); });
    return Peer::create(shared->host, services, std::move(identity));
  };
}

Endpoint::~Endpoint() {
  if (of_parent()) {
    // The thread and the locks it may hold belong to the parent: leak everything.
    new std::shared_ptr<Control>(std::move(control_));
    new std::shared_ptr<CopyQueue>(std::move(copy_queue_));
    new std::shared_ptr<Stager>(std::move(stager_));
    new std::shared_ptr<Checker>(std::move(checker_));
    return;
  }
  close(Deadline::after(Deadline::Seconds(0)));
  if (stager_) stager_->stop();
  if (checker_) checker_->stop();
}

void Endpoint::check_process() const {
  if (of_parent()) {
    throw Error(
        "this Endpoint belongs to the process that made it: after fork(), make a new one in the "
        "child (or start processes with spawn)");
  }
}

void Endpoint::check_open() const {
  check_process();
  if (closed()) throw Error("this Endpoint is closed: make a new one");
}

void Endpoint::check_devices() const {
  if (const auto loss = all_gone(rails_)) throw VerbsError(*loss, ENODEV);
}

Deadline Endpoint::deadline(std::optional<double> timeout) const {
  const double seconds = timeout.value_or(options_.timeout);
  if (!(seconds >= 0)) {
    throw std::invalid_argument("a timeout is a number of seconds >= 0, not " +
                                std::to_string(seconds));
  }
  return Deadline::after(Deadline::Seconds(seconds));
}

std::vector<std::shared_ptr<Peer>> Endpoint::peers() const {
  check_process();
  const Life::Inside inside(life_);
  return closed() ? std::vector<std::shared_ptr<Peer>>{} : control_->peers();
}

std::vector<DeviceEvent> Endpoint::device_events() const {
  check_process();
  const Life::Inside inside(life_);
  return closed() ? std::vector<DeviceEvent>{} : control_->events().all();
}

std::size_t Endpoint::message_nbytes() const {
  const Life::Inside inside(life_);
  if (of_parent() || closed()) return 0;
  std::size_t nbytes = sends_->nbytes();
  for (const auto& pool : services_.receives) nbytes += pool->nbytes();
  return nbytes;
}

std::shared_ptr<Dialling> Endpoint::dial(std::span<const std::byte> bytes) {
  const Entered entered = enter();
  return begin_dialling(bytes);
}

std::shared_ptr<Dialling> Endpoint::begin_dialling(std::span<const std::byte> bytes) {
  check_devices();
  const Address address = Address::from_bytes(bytes);
  if (address.id == address_.id) {
    throw std::invalid_argument(
        "this is the Endpoint's own address: it cannot connect to itself, make a second Endpoint");
  }
  if (auto peer = control_->find(address.id); peer && peer->alive()) {
    if (peer->secret && *peer->secret != address.secret) {
      throw AuthenticationError(
          "this address of endpoint '" + address.name +
          "' has a different secret from the one it is connected with: ask for its "
          "true address");
    }
    const auto attempt = std::make_shared<Attempt>(address);
    attempt->peer = std::move(peer);
    attempt->done.set_at_once();
    return std::make_shared<Dialling>(control_, attempt);
  }
  auto dialling = std::make_shared<Dialling>(control_, control_->connect(address));
  check_open();  // after connect(): close() ends everything that began before it
  return dialling;
}

std::shared_ptr<Peer> Endpoint::connect(std::span<const std::byte> bytes,
                                        const Deadline& deadline) {
  const Entered entered = enter();
  // If a timeout or Ctrl-C ends the wait, dialling stops too.
  const auto dialling = begin_dialling(bytes);
  if (!services_.poller->wait([&] { return dialling->done() || closed(); }, deadline)) {
    throw TransferTimeout(dialling->late());
  }
  if (!dialling->done()) check_open();
  return dialling->peer();
}

std::shared_ptr<Peer> Endpoint::accept(const Deadline& deadline) {
  const Entered entered = enter();
  std::shared_ptr<Peer> peer;
  const auto ended = [&] { return closed() || all_gone(rails_); };
  services_.poller->wait([&] { return (peer = control_->take_accepted()) || ended(); }, deadline);
  if (peer) return peer;
  check_open();
  check_devices();
  throw TransferTimeout(kNobodyConnected);
}

std::shared_ptr<Peer> Endpoint::find_accepted() {
  const Entered entered = enter();
  auto peer = control_->take_accepted();
  if (!peer) check_devices();
  return peer;
}

AsyncWaits::Begun Endpoint::await_peer(AsyncWaits::Tell tell) {
  const Entered entered = enter();
  AsyncWaits& waits = *services_.poller->waits();
  const auto begun = waits.await_peer(std::move(tell));
  // After the registration, as these may have happened before it.
  if (all_gone(rails_)) waits.tell_all();
  if (control_->has_accepted()) waits.tell_peers();
  return begun;
}

AsyncWaits::Begun Endpoint::await_slots(std::uint32_t first, std::uint32_t count,
                                        AsyncWaits::Tell tell) {
  const Entered entered = enter();
  check_slots(first, count);
  AsyncWaits& waits = *services_.poller->waits();
  const auto begun = waits.await_slots(first, count, std::move(tell));
  if (all_gone(rails_) || control_->lonely()) waits.tell_slots();  // see await_peer()
  const BoardPages& pages = services_.board->pages();
  if (pages.kernels.load() != 0 || pages.writers.load() != 0) control_->look();  // they wake no one
  return begun;
}

void Endpoint::arm_for_async_waits() {
  const Entered entered = enter();
  services_.poller->arm_for_sleepers();
}

void Endpoint::forget_async_wait(AsyncWaits::Id id) {
  if (generation_ != fork_generation()) return;
  const Life::Inside inside(life_);
  if (!closed()) services_.poller->waits()->forget(id);
}

void Endpoint::close(const Deadline& deadline) {
  if (of_parent() || closed_.exchange(true)) return;
  try {
    const auto peers = control_->peers();
    const auto all_idle = [&] {
      return std::ranges::all_of(peers,
                                 [](const auto& peer) { return !peer->alive() || peer->idle(); });
    };
    if (!services_.poller->wait(all_idle, deadline)) {
      for (const auto& peer : peers) peer->count_unfinished();
    }
  } catch (...) {  // Ctrl-C ends the wait, but the Endpoint still closes
    stop();
    throw;
  }
  stop();
}

void Endpoint::stop() {
  streams_->end_waits();
  services_.board->pages().lonely.store(1);  // kernels stop waiting
  control_->stop();
  if (!drivers_->stop(Deadline::after(Deadline::Seconds(2)))) {
    report("a driver call does not return: it keeps the resources that it uses");
    services_.receives.clear();  // not released here: it may be adding to them
  }
  services_.poller->finish_sources(Deadline::after(shm::kLongestCopy));
  expiry_.stop();
  checker_->stop();
  stager_->stop();  // every Peer is lost, so its remaining work ends
  if (copy_queue_) copy_queue_->stop();
  if (neighbourhood_) neighbourhood_->exposures()->close();
  services_.poller->waits()->tell_all();
  services_.poller->wake();
  life_.end(std::chrono::milliseconds(500));
}

void Endpoint::release() noexcept {
  control_.reset();
  stager_.reset();
  checker_.reset();
  registrations_.reset();
  live_regions_->end();  // releases the devices, even if the program keeps arrays
  {
    const std::lock_guard lock(gpu_mutex_);
    gpu_registrations_ = {};
  }
  streams_->release();
  gpu_board_.reset();
  note_mirrors_.reset();
  services_.poller->release();
  services_.poller.reset();
  copy_queue_.reset();
  neighbourhood_.reset();
  services_.board.reset();
  sends_->release();
  for (const auto& pool : services_.receives) pool->release();
  for (const auto& rail : rails_) rail->release();
  rails_.clear();
}

}  // namespace zerohop::engine
