#include "rdma/devx_queue_pair.hpp"

#include <endian.h>

#include <bit>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "driver/verbs_call.hpp"

namespace zerohop::rdma {

using mlx5::Command;
using mlx5::Opcode;

namespace {

constexpr std::size_t kEntryNbytes = 64;
constexpr std::size_t kPageNbytes = 4096;
constexpr std::uint64_t kLogMostMessage = 30;  // 1 GiB
constexpr std::uint64_t kLogAckRequests = 3;   // at least every eighth packet asks for an answer

std::uint64_t log_of(std::uint32_t count) {
  return static_cast<std::uint64_t>(std::bit_width(count) - 1);
}

std::uint64_t log_of_reads(std::uint8_t count) { return count < 2 ? 0 : log_of(count); }

}  // namespace

std::size_t DevxRing::nbytes_of(std::uint32_t count) noexcept {
  return (count * kEntryNbytes + kRecordNbytes + kPageNbytes - 1) / kPageNbytes * kPageNbytes;
}

DevxQueuePair::DevxQueuePair(std::shared_ptr<ProtectionDomain> domain,
                             std::shared_ptr<const driver::Mlx5dv> mlx5dv, const DevxRing& sends,
                             const DevxRing& completions, const QueuePairOptions& options)
    : domain_(std::move(domain)),
      devx_(domain_->device_ptr(), std::move(mlx5dv)),
      options_(options),
      psn_(random_psn()),
      uar_(devx_.alloc_uar()),
      send_memory_(devx_.reg_umem(sends.range)),
      completion_memory_(devx_.reg_umem(completions.range)) {
  make_completion_queue(completions);
  make_queue_pair(sends);
}

void DevxQueuePair::make_completion_queue(const DevxRing& ring) {
  namespace cq = mlx5::cq;
  Command command(Opcode::create_cq);
  command.with(cq::kLogSize, log_of(ring.count)).with(cq::kUarPage, uar_->page_id);
  command.with(cq::kEqn, devx_.event_queue());
  command.with(cq::kIsUmem, 1).with(cq::kUmem, completion_memory_->umem_id);
  command.with(cq::kRecordIsUmem, 1).with(cq::kRecordUmem, completion_memory_->umem_id);
  command.with(cq::kRecordOffset, ring.record_at());
  completion_queue_ = devx_.create(command);
  completion_queue_number_ = static_cast<std::uint32_t>(command.answered(mlx5::kNumber));
  shown_completions_.buf = ring.at;
  shown_completions_.dbrec = reinterpret_cast<__be32*>(ring.at + ring.record_at());
  shown_completions_.cqe_cnt = ring.count;
  shown_completions_.cqe_size = kEntryNbytes;
  shown_completions_.cqn = completion_queue_number_;
}

void DevxQueuePair::make_queue_pair(const DevxRing& ring) {
  namespace qp = mlx5::qp;
  constexpr std::uint64_t kNoUserIndex = 0xffffff;
  Command command(Opcode::create_qp);
  command.with(qp::kMigration, qp::kMigrated).with(qp::kPd, devx_.number_of(domain_->handle()));
  command.with(qp::kLogSends, log_of(ring.count)).with(qp::kUarPage, uar_->page_id);
  command.with(qp::kUserIndex, kNoUserIndex).with(qp::kReceiveType, qp::kNoReceives);
  command.with(qp::kSendCq, completion_queue_number_);
  command.with(qp::kReceiveCq, completion_queue_number_);
  command.with(qp::kIsUmem, 1).with(qp::kUmem, send_memory_->umem_id);
  command.with(qp::kRecordIsUmem, 1).with(qp::kRecordUmem, send_memory_->umem_id);
  command.with(qp::kRecordOffset, ring.record_at());
  queue_pair_ = devx_.create(command);
  number_ = static_cast<std::uint32_t>(command.answered(mlx5::kNumber));
  shown_sends_.sq = {ring.at, ring.count, kEntryNbytes};
  shown_sends_.dbrec = reinterpret_cast<__be32*>(ring.at + ring.record_at());
  shown_sends_.bf = {uar_->reg_addr, 0};
}

QueuePairAddress DevxQueuePair::address() const {
  return address_of(devx_.device(), options_, number_, psn_);
}

ibv_qp_state DevxQueuePair::state() const {
  Command command(Opcode::query_qp);
  devx_.query(queue_pair_, command.with(mlx5::kNumber, number_));
  // By the firmware's numbers.
  constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                      IBV_QPS_SQE,   IBV_QPS_SQD,  IBV_QPS_ERR};
  const std::uint64_t state = command.answered(mlx5::qp::kState);
  return state < std::size(kStates) ? kStates[state] : IBV_QPS_UNKNOWN;
}

void DevxQueuePair::connect(const QueuePairAddress& remote) {
  to_init();
  to_ready_to_receive(remote);
  to_ready_to_send(remote);
}

void DevxQueuePair::to_init() {
  Command command(Opcode::rst_to_init);
  command.with(mlx5::kNumber, number_).with(mlx5::qp::kMigration, mlx5::qp::kMigrated);
  command.with(mlx5::qp::kPkeyIndex, options_.pkey_index);
  devx_.modify(queue_pair_, command.with(mlx5::qp::kPort, devx_.device().port()));
}

void DevxQueuePair::to_ready_to_receive(const QueuePairAddress& remote) {
  namespace qp = mlx5::qp;
  const Agreement agreed = agree(address(), remote);
  Command command(Opcode::init_to_rtr);
  command.with(mlx5::kNumber, number_).with(qp::kMtu, agreed.mtu);
  command.with(qp::kLogMostMessage, kLogMostMessage).with(qp::kRemoteNumber, remote.number);
  command.with(qp::kReceivePsn, remote.psn).with(qp::kLogReadsIn, log_of_reads(agreed.reads_in));
  command.with(qp::kRnrTimer, options_.rnr_timer);
  set_path(command, remote);
  devx_.modify(queue_pair_, command);
}

void DevxQueuePair::to_ready_to_send(const QueuePairAddress& remote) {
  namespace qp = mlx5::qp;
  Command command(Opcode::rtr_to_rts);
  command.with(mlx5::kNumber, number_).with(qp::kSendPsn, psn_);
  command.with(qp::kAckTimeout, options_.timeout).with(qp::kRetries, options_.retries);
  command.with(qp::kRnrRetries, options_.rnr_retries);
  command.with(qp::kLogAckRequests, kLogAckRequests);
  const Agreement agreed = agree(address(), remote);
  devx_.modify(queue_pair_, command.with(qp::kLogReadsOut, log_of_reads(agreed.reads_out)));
}

// An address handle resolves what the path takes on Ethernet: the other port's address there.
void DevxQueuePair::set_path(Command& command, const QueuePairAddress& remote) const {
  namespace qp = mlx5::qp;
  const Device& device = devx_.device();
  ibv_ah_attr path = path_to(device, options_, remote);
  command.with(qp::kPkeyIndex, options_.pkey_index).with(qp::kPort, path.port_num);
  if (path.is_global) {
    command.with(qp::kSourceGidIndex, path.grh.sgid_index).with(qp::kHopLimit, path.grh.hop_limit);
    command.with(qp::kTrafficClass, path.grh.traffic_class);
    command.with_gid(qp::kRemoteGid, path.grh.dgid.raw);
  }
  if (device.port_attributes().link_layer != IBV_LINK_LAYER_ETHERNET) {
    command.with(qp::kHasGrh, path.is_global).with(qp::kRemoteLid, path.dlid);
    command.with(qp::kServiceLevel, path.sl);
    return;
  }
  const driver::Verbs& verbs = device.verbs();
  const auto destroy = [&](ibv_ah* handle) {
    driver::report_errno(verbs.destroy_ah(handle), "ibv_destroy_ah");
  };
  const std::unique_ptr<ibv_ah, decltype(destroy)> handle(
      driver::check_null(verbs.create_ah(domain_->handle(), &path),
                         "ibv_create_ah to the peer's GID on " + device.name()),
      destroy);
  mlx5dv_ah found{};
  mlx5dv_obj objects{};
  objects.ah = {handle.get(), &found};
  driver::check_errno(devx_.mlx5dv().init_obj(&objects, MLX5DV_OBJ_AH),
                      "mlx5dv_init_obj of an address handle");
  std::uint16_t high = 0;
  std::uint32_t low = 0;
  std::memcpy(&high, found.av->rmac, sizeof high);
  std::memcpy(&low, found.av->rmac + sizeof high, sizeof low);
  command.with(qp::kRemoteMacHigh, be16toh(high)).with(qp::kRemoteMacLow, be32toh(low));
  command.with(qp::kUdpSourcePort, be16toh(found.av->rlid));  // on RoCE
  command.with(qp::kEthernetPriority, path.sl & 7u);
}

}  // namespace zerohop::rdma
