// DEVX: commands that a program writes for the firmware by itself. Those that make completion
// queues and queue pairs in memory of its choice, and move those through their states.
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>

#include "commands.hpp"
#include "prm.hpp"
#include "softhca/device.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::mlx5sim {

Umem::~Umem() {
  if (mapped) ::munmap(memory.address(), nbytes);
}

QueueMemory Umem::place(std::uint64_t offset, std::uint64_t size) const {
  if (offset > nbytes || size > nbytes - offset || offset % 8 != 0) throw Refused{EINVAL};
  return memory + offset;
}

namespace devx_calls {
namespace {

using In = std::span<const std::byte>;
using Out = std::span<std::byte>;

constexpr std::uint64_t kRecordNbytes = 8;
constexpr std::uint32_t kEventQueue = 1;  // the number of the only one

// The firmware refuses: the caller finds out why in the answer.
[[noreturn]] void refuse(Out answer, std::uint64_t status) {
  prm::set(answer, prm::kStatus, status);
  throw Refused{EREMOTEIO};
}

QueueMemory in_umem(Ucontext& context, In command, prm::Field umem, prm::Field offset,
                    std::uint64_t nbytes) {
  const auto number = static_cast<std::uint32_t>(prm::get(command, umem));
  return context.umems.at(number).place(prm::get(command, offset), nbytes);
}

std::uint32_t create_cq(Ucontext& context, In command, Out answer) {
  using namespace prm::cq;
  const bool umems = prm::get(command, kIsUmem) != 0 && prm::get(command, kRecordIsUmem) != 0;
  const bool event_queue = prm::get(command, kEqn) == kEventQueue;
  if (!umems || !event_queue || prm::get(command, kEntrySize) > 1) {
    refuse(answer, prm::kBadParameter);
  }
  CqRing ring;
  ring.count = 1u << prm::get(command, kLogSize);
  ring.entry_nbytes = 64u << prm::get(command, kEntrySize);
  ring.collapsed = prm::get(command, kCollapsed) != 0;
  ring.memory =
      in_umem(context, command, kUmem, kUmemOffset, std::uint64_t{ring.count} * ring.entry_nbytes);
  const QueueMemory record = in_umem(context, command, kRecordUmem, kRecordOffset, kRecordNbytes);
  return context.cqs.add(std::make_unique<Cq>(ring, record, 0, nullptr));
}

std::uint32_t create_qp(Ucontext& context, In command, Out answer) {
  using namespace prm::qp;
  const std::uint64_t type = prm::get(command, kReceiveType);
  const bool umems = prm::get(command, kIsUmem) != 0 && prm::get(command, kRecordIsUmem) != 0;
  if (!umems || (type != kOwnReceives && type != kSharedReceives && type != kNoReceives)) {
    refuse(answer, prm::kBadParameter);
  }
  qp_calls::Plan plan;
  QpRings& rings = plan.rings;
  if (type == kOwnReceives) rings.receive_count = 1u << prm::get(command, kLogReceives);
  rings.receive_nbytes = 16u << prm::get(command, kLogReceiveStride);
  if (prm::get(command, kNoSends) == 0) rings.send_blocks = 1u << prm::get(command, kLogSends);
  const std::uint64_t receives = std::uint64_t{rings.receive_count} * rings.receive_nbytes;
  rings.receives = in_umem(context, command, kUmem, kUmemOffset,
                           receives + rings.send_blocks * std::uint64_t{MLX5_SEND_WQE_BB});
  rings.sends = rings.receives + receives;
  rings.record = in_umem(context, command, kRecordUmem, kRecordOffset, kRecordNbytes);
  rings.user_index = static_cast<std::uint32_t>(prm::get(command, kUserIndex));
  rings.page = static_cast<std::uint32_t>(prm::get(command, kPage));
  const auto cq = [&](prm::Field field) {
    return &context.cqs.at(static_cast<std::uint32_t>(prm::get(command, field)));
  };
  plan.send_cq = cq(kSendCq);
  plan.receive_cq = type == kNoReceives ? plan.send_cq : cq(kReceiveCq);
  if (type == kSharedReceives) {
    plan.srq = &context.srqs.at(static_cast<std::uint32_t>(prm::get(command, kSrq)));
  }
  plan.pd = context.pds.at(static_cast<std::uint32_t>(prm::get(command, kPd))).soft;
  plan.cap.max_send_sge = softhca::limits::kSge;
  return qp_calls::add(context, plan);
}

ibv_qp_attr to_init(In command) {
  ibv_qp_attr given{};
  given.qp_state = IBV_QPS_INIT;
  given.port_num = 1;
  const auto right = [&](prm::Field field, unsigned bit) {
    return prm::get(command, field) != 0 ? bit : 0u;
  };
  given.qp_access_flags = right(prm::qp::kRemoteRead, IBV_ACCESS_REMOTE_READ) |
                          right(prm::qp::kRemoteWrite, IBV_ACCESS_REMOTE_WRITE) |
                          right(prm::qp::kRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC);
  return given;
}

ibv_qp_attr to_ready_to_receive(In command) {
  using namespace prm::qp;
  ibv_qp_attr given{};
  given.qp_state = IBV_QPS_RTR;
  given.path_mtu = static_cast<ibv_mtu>(prm::get(command, kMtu));
  given.dest_qp_num = static_cast<std::uint32_t>(prm::get(command, kRemoteNumber));
  given.rq_psn = static_cast<std::uint32_t>(prm::get(command, kReceivePsn));
  given.max_dest_rd_atomic = static_cast<std::uint8_t>(1u << prm::get(command, kLogReadsIn));
  given.min_rnr_timer = static_cast<std::uint8_t>(prm::get(command, kMinRnrNak));
  given.ah_attr.is_global = 1;
  given.ah_attr.port_num = 1;
  given.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(prm::get(command, kSourceGidIndex));
  const std::uint64_t gid[2] = {htobe64(prm::get(command, kRemoteGidHigh)),
                                htobe64(prm::get(command, kRemoteGidLow))};
  std::memcpy(given.ah_attr.grh.dgid.raw, gid, sizeof gid);
  return given;
}

ibv_qp_attr to_ready_to_send(In command) {
  using namespace prm::qp;
  ibv_qp_attr given{};
  given.qp_state = IBV_QPS_RTS;
  given.timeout = static_cast<std::uint8_t>(prm::get(command, kAckTimeout));
  given.retry_cnt = static_cast<std::uint8_t>(prm::get(command, kRetryCount));
  given.rnr_retry = static_cast<std::uint8_t>(prm::get(command, kRnrRetry));
  given.sq_psn = static_cast<std::uint32_t>(prm::get(command, kSendPsn));
  given.max_rd_atomic = static_cast<std::uint8_t>(1u << prm::get(command, kLogReadsOut));
  return given;
}

// What an adapter needs and the software HCA does not.
void check_port(In command, Out answer) {
  using namespace prm::qp;
  const bool migrated = prm::get(command, kMigration) == kMigrated;
  if (prm::get(command, kPort) != 1 || !migrated) refuse(answer, prm::kBadParameter);
}

// Of the remote port, as the peer's GID gives it here.
std::uint64_t mac_behind(In command) {
  using namespace prm::qp;
  const std::uint64_t gid[2] = {htobe64(prm::get(command, kRemoteGidHigh)),
                                htobe64(prm::get(command, kRemoteGidLow))};
  std::array<std::uint8_t, 16> raw;
  std::memcpy(raw.data(), gid, sizeof gid);
  std::uint64_t mac = 0;
  for (const std::uint8_t byte : mac_of(raw)) mac = mac << 8 | byte;
  return mac;
}

// An adapter would send to nobody, no further than to its own network, from a port that routers do
// not spread (RoCE v2's are the dynamic ones), in another class than the path's, or nothing longer
// than a byte.
void check_path(In command, Out answer) {
  using namespace prm::qp;
  constexpr std::uint64_t kFirstUdpPort = 0xc000;
  constexpr std::uint64_t kMostMessage = 30;  // log_max_msg of all adapters
  const std::uint64_t longest = prm::get(command, kLogMostMessage);
  const bool reaches = (prm::get(command, kRemoteMacHigh) << 32 |
                        prm::get(command, kRemoteMacLow)) == mac_behind(command) &&
                       prm::get(command, kHopLimit) != 0 && prm::get(command, kPort) == 1;
  const bool is_roce = prm::get(command, kUdpSourcePort) >= kFirstUdpPort &&
                       prm::get(command, kDscp) == prm::get(command, kTrafficClass) >> 2;
  if (!reaches || !is_roce || longest == 0 || longest > kMostMessage) {
    refuse(answer, prm::kBadParameter);
  }
}

void change(Ucontext& context, Qp& qp, In command, Out answer) {
  ibv_qp_attr plain{};
  switch (prm::get(command, prm::kOpcode)) {
    case prm::kRstToInit:
      check_port(command, answer);
      return qp_calls::change(context, qp, to_init(command),
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    case prm::kInitToRtr:
      check_path(command, answer);
      return qp_calls::change(context, qp, to_ready_to_receive(command),
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    case prm::kRtrToRts:
      return qp_calls::change(context, qp, to_ready_to_send(command),
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    case prm::kToError:
      plain.qp_state = IBV_QPS_ERR;
      return qp_calls::change(context, qp, plain, IBV_QP_STATE);
    case prm::kToReset:
      plain.qp_state = IBV_QPS_RESET;
      return qp_calls::change(context, qp, plain, IBV_QP_STATE);
    default: refuse(answer, prm::kBadOperation);
  }
}

// Of DEVX, or of verbs: those have handles of their own.
Qp& qp_in(Ucontext& context, In command) {
  const auto number = static_cast<std::uint32_t>(prm::get(command, prm::kNumber));
  const auto found = context.by_number.find(number);
  if (found == context.by_number.end()) throw Refused{EINVAL};
  return *found->second;
}

// `offset` in the buffer; who exports that may have nothing for processors, as a GPU.
QueueMemory map_buffer(int fd, std::uint64_t offset, std::uint64_t nbytes) {
  void* mapped =
      ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) throw Refused{errno == EBADF ? EBADF : EOPNOTSUPP};
  return QueueMemory(reinterpret_cast<std::uintptr_t>(mapped));
}

// At that address, of the host or of a GPU.
QueueMemory memory_at(Ucontext& context, std::uint64_t address, std::uint64_t nbytes) {
  auto copier = context.peer_memory.copier(address, nbytes);
  if (!copier) return QueueMemory(address);
  return QueueMemory(address, std::make_shared<driver::RingCopies>(std::move(copier)));
}

}  // namespace

void general(Call& call) {
  const In command = call.bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN);
  const Out answer = call.room(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT);
  std::ranges::fill(answer, std::byte{0});
  // It has none of the capabilities that are asked for in this way.
  if (prm::get(command, prm::kOpcode) != prm::kQueryHcaCap) refuse(answer, prm::kBadOperation);
}

void query_eqn(Call& call) {
  if (call.in<std::uint32_t>(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC) != 0) throw Refused{EINVAL};
  call.out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, kEventQueue);
}

void query_uar(Call& call) {
  call.out(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX,
           call.in<std::uint32_t>(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX));
}

void reg_umem(Ucontext& context, Call& call) {
  const auto address = call.in<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
  const auto nbytes = call.in<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
  const bool buffer = call.has(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD);
  if (nbytes == 0 || (address == 0 && !buffer)) throw Refused{EINVAL};
  const auto reach = [&] {
    if (!buffer) return memory_at(context, address, nbytes);
    const auto fd = static_cast<int>(call.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD));
    return map_buffer(fd, address, nbytes);  // which is an offset there
  };
  const std::uint32_t number = context.umems.add(std::make_unique<Umem>(reach(), nbytes, buffer));
  call.out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, number);
  call.made(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, number);
}

void dereg_umem(Ucontext& context, Call& call) {
  const std::uint32_t number = call.handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE);
  (void)context.umems.at(number);
  for (const auto& [handle, object] : context.devx) {
    if (object->umem == number || object->record_umem == number) throw Refused{EBUSY};
  }
  context.umems.remove(number);
}

void create(Ucontext& context, Call& call) {
  const In command = call.bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN);
  const Out answer = call.room(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT);
  std::ranges::fill(answer, std::byte{0});
  DevxObject made{};
  const auto number = [&](prm::Field field) {
    return static_cast<std::uint32_t>(prm::get(command, field));
  };
  switch (prm::get(command, prm::kOpcode)) {
    case prm::kCreateCq:
      made = {true, create_cq(context, command, answer), number(prm::cq::kUmem),
              number(prm::cq::kRecordUmem)};
      prm::set(answer, prm::kNumber, made.handle);
      break;
    case prm::kCreateQp:
      made = {false, create_qp(context, command, answer), number(prm::qp::kUmem),
              number(prm::qp::kRecordUmem)};
      prm::set(answer, prm::kNumber, context.qps.at(made.handle).number());
      break;
    default: refuse(answer, prm::kBadOperation);
  }
  call.made(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE,
            context.devx.add(std::make_unique<DevxObject>(made)));
}

void modify(Ucontext& context, Call& call) {
  const In command = call.bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN);
  const Out answer = call.room(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT);
  std::ranges::fill(answer, std::byte{0});
  change(context, qp_in(context, command), command, answer);
}

void query(Ucontext& context, Call& call) {
  const In command = call.bytes(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN);
  const Out answer = call.room(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT);
  std::ranges::fill(answer, std::byte{0});
  if (prm::get(command, prm::kOpcode) != prm::kQueryQp) refuse(answer, prm::kBadOperation);
  const Qp& qp = qp_in(context, command);
  // The firmware counts them so, too, up to these; an error is 6 there and here.
  prm::set(answer, prm::qp::kState, qp.state_shown(state_of(qp.soft)));
}

void destroy(Ucontext& context, Call& call) {
  const std::uint32_t handle = call.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
  const DevxObject object = context.devx.at(handle);
  if (object.is_cq) {
    if (context.cqs.at(object.handle).users > 0) throw Refused{EBUSY};
    context.cqs.remove(object.handle);
  } else {
    (void)qp_calls::remove(context, object.handle);
  }
  context.devx.remove(handle);
}

}  // namespace devx_calls
}  // namespace zerohop::mlx5sim
