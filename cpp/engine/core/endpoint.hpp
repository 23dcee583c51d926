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
  std::string device;  // several separated by commas; empty: the first usable adapter, else soft0
  DevicePreference preference{};      // adapters to try first then
  rdma::PortWish port;                // of the device
  rdma::QueuePairOptions queue_pair;  // of every Peer
  MessageWindow messages{};           // of every Peer, per rail
  GpuOptions gpu;
  std::uint64_t stripe_bytes = kDefaultStripeBytes;  // larger transfers use several rails
  // The nearest rail for memory on a device ("cuda:0") or, for host memory, on a NUMA node
  // ("numa:1"). Memory of unlisted places uses the first rail.
  std::map<std::string, RailIndex> nearest;
  std::size_t max_peers = 0;  // at a time; 0: no limit
  bool integrity = false;     // whether checksums verify transfers end to end
  bool rdma_cm = false;       // whether it connects the queue pairs; it always does on iWARP
  bool p2p = true;            // whether processes of this host access its memory without a device
  std::string name;           // for messages; empty: "<host>:<pid>"
  double timeout = 30.0;      // seconds: the limit of every wait without one of its own
  std::chrono::microseconds spin{200};       // how long a wait polls before it sleeps
  std::string host;                          // to listen on; empty: the choice of control_host()
  Poller::Interrupt interrupt;               // may end a wait early
  std::shared_ptr<const driver::Cuda> cuda;  // null: libcuda's, loaded for the first GPU array
  std::function<std::vector<DeviceChoice>()> open_devices;  // null: opens those in `device`
  softhca::Faults faults{};                                 // of its devices, which must be soft
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

  // The Peer at that address; the existing one if they are connected already. Throws
  // TransferTimeout, PeerLost (refused), AuthenticationError, ProtocolError (mangled address).
  std::shared_ptr<Peer> connect(std::span<const std::byte> address, const Deadline& deadline);
  // The next Peer that connected to this Endpoint and was not returned yet. Throws TransferTimeout.
  std::shared_ptr<Peer> accept(const Deadline& deadline);
  static constexpr const char* kNobodyConnected =
      "no peer connected in time: has it been given this Endpoint's address?";

  // --- the same for event loops: none of these blocks (see AsyncWaits) ---
  std::shared_ptr<Dialling> dial(std::span<const std::byte> address);
  std::shared_ptr<Peer> find_accepted();  // null: none yet
  // nullopt: none yet. Throws as wait_notify() does.
  std::optional<Notified> find_notify(std::uint32_t first, std::uint32_t count, bool reset);
  AsyncWaits::Begun await_peer(AsyncWaits::Tell tell);
  AsyncWaits::Begun await_slots(std::uint32_t first, std::uint32_t count, AsyncWaits::Tell tell);
  void arm_for_async_waits();  // after the first wait
  void forget_async_wait(AsyncWaits::Id id);

  std::vector<std::shared_ptr<Peer>> peers() const;  // none once closed
  RouteBooks::Reading route_stats() const { return books_->read(); }
  // The asynchronous events of its devices, newest last; none once closed.
  std::vector<DeviceEvent> device_events() const;
  std::size_t message_nbytes() const;  // registered with devices, for all Peers; 0 once closed

  // Takes effect at once; Faults{}: none. Throws std::invalid_argument on an adapter.
  void set_faults(const softhca::Faults& faults);
  softhca::Faults faults() const;
  // Counts of injected faults on its devices, by name; also once closed.
  std::map<std::string, std::uint64_t> fault_counts() const;

  struct Registering {
    bool writable = false;
    std::string device = "cpu";  // as PyTorch names devices
    bool shared = true;          // see HostRegistrations
    bool exposed = true;         // false: processes of this host access it through a device only
    std::optional<RegistrationDemand> demand{};  // for GPU memory; nullopt: the Endpoint's
    int memfd = -1;  // that backs the pages of the layout, kept open by the owner; -1: none
  };
  // Registers what `layout` covers. `owner` is kept alive as long as the memory is in use. Throws
  // RegistrationError, CudaError.
  Memory register_memory(const Layout& layout, std::shared_ptr<void> owner, const Registering& how);
  RegionCache::Stats gpu_registration_stats() const;  // all zero before the first GPU array
  // Fresh zeroed memory on the host ("cpu") or on a GPU. Throws RegistrationError, CudaError, and
  // TransferTimeout if a GPU is too busy to zero it.
  Memory empty(std::span<const std::int64_t> shape, DType dtype, const std::string& device = "cpu",
               std::optional<RegistrationDemand> demand = {});

  // A revocable right to that memory of this Endpoint, from its first to its last byte. Throws
  // RegistrationError, and std::invalid_argument if it allows more than the memory itself.
  Grant grant(const Memory& memory, const GrantOptions& options);

  void share(const std::string& name, const Memory& memory);
  bool unshare(const std::string& name);  // false: nothing has that name

  // The first non-empty slot in [first, first + count). Throws TransferTimeout, std::out_of_range,
  // and PeerLost if there have been peers and none is left to notify.
  Notified wait_notify(std::uint32_t first, std::uint32_t count, bool reset,
                       const Deadline& deadline);
  // The same with reset, plus all other values present by then. Clears `taken` first.
  void wait_notifies(std::uint32_t first, std::uint32_t count, std::vector<Notified>& taken,
                     const Deadline& deadline);
  // Makes a stream of the program wait for a notification or a transfer, for at most `timeout`
  // seconds after the stream reaches that point; see StreamWaits. Throws RouteUnavailable,
  // CudaError.
  std::shared_ptr<Transfer> wait_notify_on(driver::CudaStream stream, std::uint32_t slot,
                                           bool reset, std::optional<double> timeout);
  std::shared_ptr<Transfer> wait_transfer_on(driver::CudaStream stream,
                                             const std::shared_ptr<Transfer>& transfer,
                                             std::optional<double> timeout);
  // Reserves `count` slots from `first` on for kernels of that GPU. Throws std::out_of_range,
  // RouteUnavailable without a CUDA driver, and the errors of SlotClaim.
  std::unique_ptr<SlotClaim> claim_slots(const std::string& device, std::uint32_t first,
                                         std::uint32_t count, const Deadline& deadline);
  std::uint32_t peek_notify(std::uint32_t slot) const;
  std::uint32_t reset_notify(std::uint32_t slot);
  // Puts a value on this Endpoint's own board, as a peer would. Throws as Peer::notify does.
  void notify(const Notification& notification);

  // Waits until `deadline` for pending transfers, leaves every Peer, stops, and releases the device
  // unless memory or transfers still hold it. Idempotent.
  void close(const Deadline& deadline);
  bool closed() const noexcept { return closed_.load(); }

  // For those that poll for the ends of kernels: the poller, and what makes the progress thread
  // poll.
  struct Polling {
    std::shared_ptr<Poller> poller;
    std::function<void()> look;
  };
  Polling polling() const;

  // In a process forked from the one that made this Endpoint.
  bool of_parent() const noexcept { return generation_ != fork_generation(); }
  void check_process() const;  // throws Error in a forked process

 private:
  // A call that uses what close() releases; throws Error once closed.
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
  RailServices services_;
  std::shared_ptr<SendPool> sends_;
  std::shared_ptr<Executor> drivers_;
  std::shared_ptr<Neighbourhood> neighbourhood_;  // null for the reason in:
  std::string no_neighbourhood_;
  std::shared_ptr<NoteMirrors> note_mirrors_;
  std::shared_ptr<GpuBoard> gpu_board_;
  std::shared_ptr<CopyQueue> copy_queue_;
  const std::shared_ptr<RouteBooks> books_ = std::make_shared<RouteBooks>();
  mutable Mutex<Rank::endpoint_faults>
      faults_mutex_;  // guards the next one, and keeps the faults of all rails equal
  softhca::Faults faults_;
  std::vector<std::shared_ptr<const softhca::FaultCounts>> fault_counts_;  // of soft devices
  const std::shared_ptr<LiveRegions> live_regions_ = std::make_shared<LiveRegions>();
  std::shared_ptr<HostRegistrations> registrations_;
  std::shared_ptr<StagedMemories> staged_memories_ = std::make_shared<StagedMemories>();
  std::shared_ptr<Stager> stager_;
  const std::shared_ptr<OwnMemories> own_memories_ = std::make_shared<OwnMemories>();
  std::shared_ptr<Checker> checker_;
  std::shared_ptr<ProgramStreams> streams_;
  mutable Mutex<Rank::endpoint_gpus> gpu_mutex_;  // guards the next one
  // By rail; null before the first GPU array.
  std::array<std::unique_ptr<GpuRegistrations>, kMaxRails> gpu_registrations_;
  const std::shared_ptr<const EndpointKey> key_ = std::make_shared<EndpointKey>();
  Address address_ = key_->address();
  std::atomic<bool> closed_{false};
  std::shared_ptr<Control> control_;
  Expiry expiry_;
};

}  // namespace zerohop::engine
