// Connects queue pairs by librdmacm: those of an iWARP device, whose TCP connections are the
// kernel's own affair, and those of a RoCE device on request (the knob rdma_cm). There the kernel
// finds the path by its routes and its table of priorities, and we take the queue pairs through
// their states, as rdma_cm does not know them (rdma_connect(3), qp_num).
//
// The end that dials sends its Introduction along; the other end accepts if the two queue pairs
// know each other from the control connection. The dialling end must send the first message on the
// queue pair, and the other end none before that (RFC 5044, 7.1); on RoCE, too, as its queue pair
// is ready last.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/fork.hpp"
#include "driver/rdmacm.hpp"
#include "rdma/device.hpp"
#include "rdma/queue_pair.hpp"

namespace zerohop::rdma {

class Connection;

// Travels in the connection request. A psn is random and known to the peer alone, by the encrypted
// control connection.
struct Introduction {
  std::uint32_t from_number = 0;
  std::uint32_t from_psn = 0;
  std::uint32_t to_number = 0;
  std::uint32_t to_psn = 0;
};

// What happened to a connection.
struct ConnectionEvent {
  enum class Kind {
    requested,    // by a peer: accept() or reject() it
    routed,       // connect() comes next
    established,  // messages can be posted, after establish() if there is a path()
    failed,       // it will not be established: `text` says why
    closed,       // by either end, or with its queue pair
  };
  Kind kind;
  std::shared_ptr<Connection> connection;
  Introduction introduction{};  // of `requested`
  std::string text{};
};

// One for each such device of an Endpoint: listens, and delivers the events of all connections.
class ConnectionManager : public std::enable_shared_from_this<ConnectionManager> {
 public:
  // Listens on the address of the device, at a port that the system chooses. traffic_class: of
  // connections that it dials, 0: the system's. Throws VerbsError.
  static std::shared_ptr<ConnectionManager> create(const Device& device,
                                                   std::shared_ptr<const driver::RdmaCm> functions,
                                                   std::uint8_t traffic_class = 0);
  ~ConnectionManager();
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  int event_fd() const noexcept { return channel_->fd; }
  // The next event, without blocking; nullopt: none for now. Throws VerbsError.
  std::optional<ConnectionEvent> next_event();

  // Begins to connect the local queue pair to the remote one: `routed` or `failed` follows. Does
  // not block. Throws VerbsError.
  std::shared_ptr<Connection> dial(const QueuePairAddress& local, const QueuePairAddress& remote);

 private:
  friend class Connection;
  struct DestroyChannel {
    std::shared_ptr<const driver::RdmaCm> functions;
    unsigned generation = fork_generation();
    void operator()(rdma_event_channel* channel) const noexcept;
  };
  struct DestroyId {
    std::shared_ptr<const driver::RdmaCm> functions;
    unsigned generation = fork_generation();
    void operator()(rdma_cm_id* id) const noexcept;
  };
  using Channel = std::unique_ptr<rdma_event_channel, DestroyChannel>;
  using Id = std::unique_ptr<rdma_cm_id, DestroyId>;

  ConnectionManager(const Device& device, std::shared_ptr<const driver::RdmaCm> functions,
                    std::uint8_t traffic_class);
  void listen();
  Id create_id();
  std::optional<ConnectionEvent> read(const rdma_cm_event& event,
                                      std::shared_ptr<Connection>& held);

  const std::shared_ptr<const driver::RdmaCm> functions_;
  const std::string device_name_;
  const Gid gid_;
  std::uint8_t traffic_class_;
  Channel channel_;
  Id listener_;
  std::uint16_t port_ = 0;
};

// Ends the connection when it is destroyed, whatever state it is in.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Of a connection that was dialled, once it is routed. May take as long as a TCP connection.
  // `established` or `failed` follows. Throws VerbsError.
  void connect();
  // Of a requested one, for the queue pair that it names. Throws VerbsError.
  void accept(const QueuePairAddress& local, const QueuePairAddress& remote);
  void reject() noexcept;
  // How the queue pair gets to the peer, requested or answered: connect it so before accept() or
  // establish(). nullopt: the kernel connects it (iWARP). Throws VerbsError.
  std::optional<Path> path() const;
  // Tells the peer that the queue pair, which dialled, is connected. Throws VerbsError.
  void establish();

  std::uint32_t number() const noexcept { return introduction_.from_number; }  // dialled: its own

 private:
  friend class ConnectionManager;
  Connection(std::shared_ptr<ConnectionManager> manager, ConnectionManager::Id id);
  rdma_conn_param parameters(std::uint32_t number, const Agreement& agreed) const noexcept;

  std::shared_ptr<ConnectionManager> manager_;  // outlives the id, which uses its channel
  ConnectionManager::Id id_;
  Introduction introduction_{};
  Agreement agreed_{};
};

// For an iWARP device, or if `wanted`; else null. Throws VerbsError.
std::shared_ptr<ConnectionManager> connection_manager(const Device& device, bool wanted = false,
                                                      std::uint8_t traffic_class = 0);

}  // namespace zerohop::rdma
