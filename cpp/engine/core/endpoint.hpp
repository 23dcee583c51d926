// This process's end of all its connections.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/locks.hpp"
#include "engine/control/control.hpp"
#include "engine/control/dialling.hpp"
#include "engine/core/device_choice.hpp"
#include "engine/core/life.hpp"
#include "engine/memory/expiry.hpp"
#include "engine/memory/gpu_registrations.hpp"
#include "engine/memory/grant.hpp"
#include "engine/memory/memory.hpp"
#include "engine/peer/peer.hpp"
#include "engine/stats/route_books.hpp"
#include "engine/stream/program_streams.hpp"
#include "engine/stream/slot_claim.hpp"
#include "softhca/faults.hpp"

namespace zerohop::engine {

struct EndpointOptions {
  std::string device;  // several with commas; empty: the first adapter that can serve, else soft0
  DevicePreference preference{};      // which adapters come first then
  rdma::PortWish port;                // of the device
  rdma::QueuePairOptions queue_pair;  // of every Peer
  MessageWindow messages{};           // of every Peer, on each rail
  GpuOptions gpu;
  std::uint64_t stripe_bytes = kDefaultStripeBytes;  // larger transfers take several rails
  // The rail nearest to memory on a device ("cuda:0") or, the host's, on a NUMA node ("numa:1");
  // for what is not listed, the first.
  std::map<std::string, RailIndex> nearest;
  std::size_t max_peers = 0;  // at a time; 0: no limit
  bool integrity = false;     // whether transfers are checked end to end, by checksums
  bool p2p = true;            // whether processes of this host reach its memory without a device
  std::string name;           // for messages; empty: "<host>:<pid>"
  double timeout = 30.0;      // seconds: the bound of every wait that is given none
  std::chrono::microseconds spin{200};       // how long a wait polls before it sleeps
  std::string host;                          // to listen on; empty: as control_host() finds
  Poller::Interrupt interrupt;               // what may end a wait early
  std::shared_ptr<const driver::Cuda> cuda;  // null: libcuda's, loaded with the first GPU array
  std::function<std::vector<DeviceChoice>()> open_devices;  // null: those that `device` names
  softhca::Faults faults{};                                 // of its devices, which are soft then
};

class Endpoint {
 public:
  using Notified = std::pair<std::uint32_t, std::uint32_t>;  // slot, value

  explicit Endpoint(const EndpointOptions& options);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  const Address& address() const noexcept { return address_; }
  double timeout() const noexcept { return options_.timeout; }
  std::chrono::microseconds spin() const noexcept { return options_.spin; }
  // Throws std::invalid_argument unless the timeout is a number of seconds >= 0.
  Deadline deadline(std::optional<double> timeout) const;

  // The Peer at that address: the present one, if both are connected already. Throws
  // TransferTimeout, PeerLost (refused), AuthenticationError, ProtocolError (mangled address).
  std::shared_ptr<Peer> connect(std::span<const std::byte> address, const Deadline& deadline);
  // The next Peer that connected to this Endpoint and was not handed out yet. Throws
  // TransferTimeout.
  std::shared_ptr<Peer> accept(const Deadline& deadline);
  static constexpr const char* kNobodyConnected =
      "no peer connected in time: has it been given this Endpoint's address?";

  // --- the same for event loops: each answers at once (see AsyncWaits) ---
  std::shared_ptr<Dialling> dial(std::span<const std::byte> address);
  std::shared_ptr<Peer> find_accepted();  // null: none yet
  // nullopt: none yet. Throws as wait_notify() does.
  std::optional<Notified> find_notify(std::uint32_t first, std::uint32_t count, bool reset);
  AsyncWaits::Begun await_peer(AsyncWaits::Tell tell);
  AsyncWaits::Begun await_slots(std::uint32_t first, std::uint32_t count, AsyncWaits::Tell tell);
  void arm_for_async_waits();  // behind the first
  void leave_async_wait(AsyncWaits::Id id);

  std::vector<std::shared_ptr<Peer>> peers() const;  // none once closed
  RouteBooks::Reading route_stats() const { return books_->read(); }
  // What its devices said by themselves, the newest last; none once closed.
  std::vector<DeviceEvent> device_events() const;
  std::size_t message_nbytes() const;  // registered with devices, for all Peers; 0 once closed

  // From now on; none: Faults{}. Throws std::invalid_argument on an adapter.
  void set_faults(const softhca::Faults& faults);
  softhca::Faults faults() const;
  // How often what happened on its devices, by name; also once closed.
  std::map<std::string, std::uint64_t> fault_counts() const;

  struct Registering {
    bool writable = false;
    std::string device = "cpu";  // as PyTorch names it
    bool shared = true;          // see Registrations
    bool exposed = true;         // false: processes of this host reach it by a device only
    std::optional<RegistrationDemand> demand{};  // for GPU memory; nullopt: the Endpoint's
    int memfd = -1;  // whose pages the layout covers, kept open by the owner; -1: none
  };
  // Registers what `layout` covers; `owner` lives as long as the memory is in use. Throws
  // RegistrationError, CudaError.
  Memory register_memory(const Layout& layout, std::shared_ptr<void> owner, const Registering& how);
  RegionCache::Stats gpu_registration_stats() const;  // all zero before the first GPU array
  // Fresh zeroed memory of the host ("cpu") or of a GPU. Throws RegistrationError, CudaError, and
  // TransferTimeout when a GPU is too busy to zero it.
  Memory empty(std::span<const std::int64_t> shape, DType dtype, const std::string& device = "cpu",
               std::optional<RegistrationDemand> demand = {});

  // The right to that memory of this Endpoint, from its first to its last byte, which can be taken
  // back. Throws RegistrationError, and std::invalid_argument for more than the memory itself
  // allows.
  Grant grant(const Memory& memory, const GrantOptions& options);

  void share(const std::string& name, const Memory& memory);
  bool unshare(const std::string& name);  // false: nothing has that name

  // The first non-empty slot in [first, first + count). Throws TransferTimeout, std::out_of_range,
  // and PeerLost when there were peers and none is left that could notify.
  Notified wait_notify(std::uint32_t first, std::uint32_t count, bool reset,
                       const Deadline& deadline);
  // The same with reset, and all the others that are there by then, in `taken`: it is cleared
  // first.
  void wait_notifies(std::uint32_t first, std::uint32_t count, std::vector<Notified>& taken,
                     const Deadline& deadline);
  // Has a stream of the program wait for a notification, or for a transfer, `timeout` seconds at
  // most from when it gets there; see StreamWaits. Throws RouteUnavailable, CudaError.
  std::shared_ptr<Transfer> wait_notify_on(driver::CudaStream stream, std::uint32_t slot,
                                           bool reset, std::optional<double> timeout);
  std::shared_ptr<Transfer> wait_transfer_on(driver::CudaStream stream,
                                             const std::shared_ptr<Transfer>& transfer,
                                             std::optional<double> timeout);
  // `count` slots from `first` on are for kernels of that GPU. Throws std::out_of_range,
  // RouteUnavailable without a CUDA driver, and what SlotClaim does.
  std::unique_ptr<SlotClaim> claim_slots(const std::string& device, std::uint32_t first,
                                         std::uint32_t count, const Deadline& deadline);
  std::uint32_t peek_notify(std::uint32_t slot) const;
  std::uint32_t reset_notify(std::uint32_t slot);
  // Puts a value on the own board, as a peer would. Throws as Peer::notify does.
  void notify(const Notification& notification);

  // Gives pending transfers until `deadline`, says goodbye to every Peer, stops, and releases the
  // device unless memory or transfers still hold it. Idempotent.
  void close(const Deadline& deadline);
  bool closed() const noexcept { return closed_.load(); }

  // In a process that was forked off the one that made this Endpoint.
  bool of_parent() const noexcept { return generation_ != fork_generation(); }
  void check_process() const;  // throws Error there

 private:
  // A call that uses what close() releases, and throws Error once closed.
  struct Entered {
    explicit Entered(const Endpoint& endpoint) : inside(endpoint.life_) { endpoint.check_open(); }
    Life::Inside inside;
  };
  Entered enter() const {
    check_process();
    return Entered(*this);
  }
  std::shared_ptr<Dialling> begin_dialling(std::span<const std::byte> address);
  std::optional<Notified> take_notify(std::uint32_t first, std::uint32_t count, bool reset,
                                      std::uint64_t begin);
  Memory register_gpu_memory(const Layout& layout, std::shared_ptr<void> owner,
                             const Registering& how);
  std::shared_ptr<gpu::Device> gpu_device(const std::string& device);
  StreamWaits::Host stream_host() const;
  GpuRegistrations& gpu_registrations(const Rail& rail, const std::string& device);
  RailIndex nearest_rail(const std::string& place) const;
  std::string place_of(const Layout& layout, const std::string& device) const;
  void check_open() const;
  void check_devices() const;  // throws VerbsError(ENODEV) when none is left
  void stop();
  void release() noexcept;
  Control::MakePeer peer_maker() const;
  void open_rails();
  void put_faults(const softhca::Faults& faults);
  void open_neighbourhood();

  const EndpointOptions options_;
  const unsigned generation_;  // of the process (fork)
  mutable Life life_{[this] { release(); }};
  Rails rails_;
  PathServices services_;
  std::shared_ptr<SendPool> sends_;
  std::shared_ptr<Executor> drivers_;
  std::shared_ptr<Neighbourhood> neighbourhood_;  // null because of:
  std::string no_neighbourhood_;
  std::shared_ptr<NoteMirrors> note_mirrors_;
  std::shared_ptr<GpuBoard> gpu_board_;
  std::shared_ptr<CopyQueue> copy_queue_;
  const std::shared_ptr<RouteBooks> books_ = std::make_shared<RouteBooks>();
  mutable Mutex<Rank::endpoint_faults>
      faults_mutex_;  // guards the next one, and that all rails have the same
  softhca::Faults faults_;
  std::vector<std::shared_ptr<const softhca::FaultCounts>>
      fault_counts_;  // of devices that are soft
  const std::shared_ptr<LiveRegions> live_regions_ = std::make_shared<LiveRegions>();
  std::shared_ptr<Registrations> registrations_;
  std::shared_ptr<StagedMemories> staged_memories_ = std::make_shared<StagedMemories>();
  std::shared_ptr<Stager> stager_;
  const std::shared_ptr<OwnMemories> own_memories_ = std::make_shared<OwnMemories>();
  std::shared_ptr<Checker> checker_;
  std::shared_ptr<ProgramStreams> streams_;
  mutable Mutex<Rank::endpoint_gpus> gpu_mutex_;  // guards the next
  // By rail; null before the first GPU array.
  std::array<std::unique_ptr<GpuRegistrations>, kMaxRails> gpu_registrations_;
  const std::shared_ptr<const EndpointKey> key_ = std::make_shared<EndpointKey>();
  Address address_ = key_->address();
  std::atomic<bool> closed_{false};
  std::shared_ptr<Control> control_;
  Expiry expiry_;
};

}  // namespace zerohop::engine
