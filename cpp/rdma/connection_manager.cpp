#include "rdma/connection_manager.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "base/report.hpp"
#include "driver/verbs_call.hpp"
#include "rdma/iwarp_gids.hpp"

namespace zerohop::rdma {
namespace {

constexpr int kBacklog = 256;
constexpr int kResolveMs = 2000;  // for a neighbour's answer, and for the route to it
// The soft device and the rest of the system share their TCP ports, so a port may be in use.
constexpr int kListenTries = 16;

static_assert(std::is_trivially_copyable_v<Introduction>);
static_assert(std::endian::native == std::endian::little);  // as both ends of a connection

// Why there is no connection, of an event that says so.
std::string failure_text(const rdma_cm_event& event) {
  const int error = event.status < 0 ? -event.status : event.status;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_ERROR:
      return errno_message("the address of the peer's device cannot be resolved", error);
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return errno_message("there is no route to the peer's device", error);
    case RDMA_CM_EVENT_UNREACHABLE: return errno_message("the peer does not answer", error);
    case RDMA_CM_EVENT_REJECTED:
      return "the peer's device refused the connection (status " + std::to_string(event.status) +
             ")";
    case RDMA_CM_EVENT_DEVICE_REMOVAL: return "the device is being removed";
    default: return errno_message("the connection failed", error);
  }
}

}  // namespace

void ConnectionManager::DestroyChannel::operator()(rdma_event_channel* channel) const noexcept {
  if (generation == fork_generation()) functions->destroy_event_channel(channel);
}

void ConnectionManager::DestroyId::operator()(rdma_cm_id* id) const noexcept {
  if (generation != fork_generation()) return;  // it shares its parent's ids (rdma/maker.hpp)
  if (functions->destroy_id(id) != 0) report({"rdma_destroy_id failed: ", ::strerror(errno)});
}

std::shared_ptr<ConnectionManager> ConnectionManager::create(
    const Device& device, std::shared_ptr<const driver::RdmaCm> functions,
    std::uint8_t traffic_class) {
  std::shared_ptr<ConnectionManager> manager(
      new ConnectionManager(device, std::move(functions), traffic_class));
  manager->listen();
  return manager;
}

std::shared_ptr<ConnectionManager> connection_manager(const Device& device, bool wanted,
                                                      std::uint8_t traffic_class) {
  if (!device.is_iwarp() && !wanted) return nullptr;
  const GidKind kind = device.gid().kind;
  const bool is_software = device.verbs().reg_copied_mr != nullptr;
  if (is_software || (kind != GidKind::iwarp && kind != GidKind::roce_v2)) {
    throw VerbsError("rdma_cm connects no queue pairs of " + device.name() +
                         (is_software ? ", the software HCA"
                                      : ", whose GID is no IP address (" +
                                            std::string(gid_kind_name(kind)) + ")") +
                         ": leave rdma_cm out, or use a RoCE v2 or an iWARP device",
                     EOPNOTSUPP);
  }
  const driver::RdmaCmLibrary& library = driver::librdmacm();
  if (!library.functions) throw VerbsError(library.reason, ENOENT);
  return ConnectionManager::create(device, library.functions, traffic_class);
}

ConnectionManager::ConnectionManager(const Device& device,
                                     std::shared_ptr<const driver::RdmaCm> functions,
                                     std::uint8_t traffic_class)
    : functions_(std::move(functions)),
      device_name_(device.name()),
      gid_(device.gid()),
      traffic_class_(traffic_class),
      channel_(driver::check_null(functions_->create_event_channel(),
                                  "rdma_create_event_channel (it needs the module rdma_ucm and "
                                  "/dev/infiniband/rdma_cm)"),
               DestroyChannel{functions_}),
      listener_(nullptr, DestroyId{functions_}) {
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    driver::throw_verbs_error("fcntl of an rdma_cm channel", errno);
  }
}

ConnectionManager::~ConnectionManager() = default;

ConnectionManager::Id ConnectionManager::create_id() {
  rdma_cm_id* id = nullptr;
  driver::check_minus_one(functions_->create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP),
                          "rdma_create_id for " + device_name_);
  return {id, DestroyId{functions_}};
}

void ConnectionManager::listen() {
  sockaddr_storage address{};
  to_socket_address(gid_, 0, address);
  for (int tries = 1;; ++tries) {
    listener_ = create_id();
    const bool listens =
        functions_->bind_addr(listener_.get(), reinterpret_cast<sockaddr*>(&address)) == 0 &&
        functions_->listen(listener_.get(), kBacklog) == 0;
    if (listens) break;
    if (errno != EADDRINUSE || tries == kListenTries) {
      driver::throw_verbs_error("rdma_listen at " + gid_text(gid_.value) + " of " + device_name_,
                                errno);
    }
  }
  port_ = ::ntohs(functions_->get_src_port(listener_.get()));
}

std::shared_ptr<Connection> ConnectionManager::dial(const QueuePairAddress& local,
                                                    const QueuePairAddress& remote) {
  std::shared_ptr<Connection> connection(new Connection(shared_from_this(), create_id()));
  connection->introduction_ = {.from_number = local.number,
                               .from_psn = local.psn,
                               .to_number = remote.number,
                               .to_psn = remote.psn};
  connection->agreed_ = agree(local, remote);
  if (traffic_class_ != 0) {
    driver::check_minus_one(
        functions_->set_option(connection->id_.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
                               &traffic_class_, sizeof traffic_class_),
        "rdma_set_option of the traffic class on " + device_name_);
  }
  sockaddr_storage from{};
  sockaddr_storage to{};
  to_socket_address(gid_, 0, from);
  to_socket_address({.netdev = gid_.netdev, .value = remote.gid}, remote.managed.port, to);
  driver::check_minus_one(
      functions_->resolve_addr(connection->id_.get(), reinterpret_cast<sockaddr*>(&from),
                               reinterpret_cast<sockaddr*>(&to), kResolveMs),
      "rdma_resolve_addr from " + device_name_ + " to " + gid_text(remote.gid));
  return connection;
}

std::optional<ConnectionEvent> ConnectionManager::next_event() {
  for (;;) {
    rdma_cm_event* event = nullptr;
    while (functions_->get_cm_event(channel_.get(), &event) != 0) {
      if (errno == EAGAIN) return std::nullopt;
      if (errno != EINTR) driver::throw_verbs_error("rdma_get_cm_event of " + device_name_, errno);
    }
    std::optional<ConnectionEvent> decoded;
    // Its destructor waits until all its events are acknowledged.
    std::shared_ptr<Connection> held;
    try {
      decoded = read(*event, held);
    } catch (...) {
      functions_->ack_cm_event(event);
      throw;
    }
    functions_->ack_cm_event(event);
    if (decoded) return decoded;
  }
}

// The object of an event exists as long as the event is not acknowledged; it may be in its
// destructor, and then nobody wants to hear of it.
std::optional<ConnectionEvent> ConnectionManager::read(const rdma_cm_event& event,
                                                       std::shared_ptr<Connection>& held) {
  using Kind = ConnectionEvent::Kind;
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    std::shared_ptr<Connection> connection(
        new Connection(shared_from_this(), Id(event.id, DestroyId{functions_})));
    Introduction introduction;
    if (event.param.conn.private_data_len >= sizeof introduction) {
      std::memcpy(&introduction, event.param.conn.private_data, sizeof introduction);
    }
    return ConnectionEvent{
        .kind = Kind::requested, .connection = std::move(connection), .introduction = introduction};
  }
  auto* const owner = static_cast<Connection*>(event.id->context);
  held = owner ? owner->weak_from_this().lock() : nullptr;
  if (!held) return std::nullopt;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (functions_->resolve_route(event.id, kResolveMs) == 0) return std::nullopt;
      return ConnectionEvent{.kind = Kind::failed,
                             .connection = held,
                             .text = errno_message("rdma_resolve_route failed", errno)};
    case RDMA_CM_EVENT_ROUTE_RESOLVED: return ConnectionEvent{Kind::routed, held};
    case RDMA_CM_EVENT_CONNECT_RESPONSE:  // where the kernel does not know the queue pair
    case RDMA_CM_EVENT_ESTABLISHED: return ConnectionEvent{Kind::established, held};
    case RDMA_CM_EVENT_DISCONNECTED: return ConnectionEvent{Kind::closed, held};
    case RDMA_CM_EVENT_ADDR_CHANGE:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT: return std::nullopt;
    default:
      return ConnectionEvent{.kind = Kind::failed, .connection = held, .text = failure_text(event)};
  }
}

Connection::Connection(std::shared_ptr<ConnectionManager> manager, ConnectionManager::Id id)
    : manager_(std::move(manager)), id_(std::move(id)) {
  id_->context = this;
}

rdma_conn_param Connection::parameters(std::uint32_t number,
                                       const Agreement& agreed) const noexcept {
  rdma_conn_param parameters{};
  parameters.responder_resources = agreed.reads_in;
  parameters.initiator_depth = agreed.reads_out;
  parameters.qp_num = number;
  parameters.srq = 1;
  return parameters;
}

void Connection::connect() {
  rdma_conn_param wanted = parameters(introduction_.from_number, agreed_);
  wanted.private_data = &introduction_;
  wanted.private_data_len = sizeof introduction_;
  driver::check_minus_one(manager_->functions_->connect(id_.get(), &wanted),
                          "rdma_connect from " + manager_->device_name_);
}

void Connection::accept(const QueuePairAddress& local, const QueuePairAddress& remote) {
  rdma_conn_param granted = parameters(local.number, agree(local, remote));
  driver::check_minus_one(manager_->functions_->accept(id_.get(), &granted),
                          "rdma_accept on " + manager_->device_name_);
}

std::optional<Path> Connection::path() const {
  if (manager_->gid_.kind == GidKind::iwarp) return std::nullopt;
  ibv_qp_attr found{};
  found.qp_state = IBV_QPS_RTR;
  int which = 0;
  driver::check_minus_one(manager_->functions_->init_qp_attr(id_.get(), &found, &which),
                          "rdma_init_qp_attr on " + manager_->device_name_);
  return Path{.attributes = found.ah_attr, .mtu = static_cast<std::uint8_t>(found.path_mtu)};
}

void Connection::establish() {
  driver::check_minus_one(manager_->functions_->establish(id_.get()),
                          "rdma_establish on " + manager_->device_name_);
}

void Connection::reject() noexcept {
  // It may be gone already: then there is nobody to tell.
  (void)manager_->functions_->reject(id_.get(), nullptr, 0);
}

}  // namespace zerohop::rdma
