#include "rdma/queue_pair.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "base/random.hpp"
#include "driver/verbs_call.hpp"

namespace zerohop::rdma {
namespace {

constexpr std::uint32_t kPsnMask = 0xffffff;

std::uint32_t at_most(std::uint32_t wanted, int limit) noexcept {
  return std::min(wanted, static_cast<std::uint32_t>(std::max(limit, 0)));
}

std::uint8_t as_byte(int value) noexcept {
  return static_cast<std::uint8_t>(std::clamp(value, 0, 255));
}

ibv_qp_cap clip(const QueuePairOptions& wanted, const ibv_device_attr& device) noexcept {
  return {.max_send_wr = at_most(wanted.send_depth, device.max_qp_wr),
          .max_recv_wr = at_most(wanted.receive_depth, device.max_qp_wr),
          .max_send_sge = at_most(wanted.send_sge, device.max_sge),
          .max_recv_sge = at_most(wanted.receive_sge, device.max_sge),
          .max_inline_data = wanted.inline_bytes};
}

// No query returns how many inline bytes a device supports: request fewer until it accepts. ENOMEM
// counts too, because inline data makes each entry of the send queue larger.
ibv_qp* create_with_inline(const driver::Verbs& verbs, ibv_pd* pd, ibv_qp_init_attr& wanted) {
  for (std::uint32_t inline_bytes = wanted.cap.max_inline_data;; inline_bytes /= 2) {
    ibv_qp_init_attr attempt = wanted;  // a provider may modify it even if it refuses
    attempt.cap.max_inline_data = inline_bytes;
    if (ibv_qp* qp = verbs.create_qp(pd, &attempt)) {
      wanted = attempt;
      return qp;
    }
    if (inline_bytes == 0 || (errno != EINVAL && errno != ENOMEM)) return nullptr;
  }
}

std::string describe(const ibv_qp_cap& cap, const Device& device) {
  const ibv_device_attr& limits = device.attributes();
  const std::string most_wr = std::to_string(limits.max_qp_wr);
  const std::string most_sge = std::to_string(limits.max_sge);
  return "ibv_create_qp on " + device.name_with("max_qp", &ibv_device_attr::max_qp) +
         " with send_depth " + std::to_string(cap.max_send_wr) + " and receive_depth " +
         std::to_string(cap.max_recv_wr) + " (at most " + most_wr + "), send_sge " +
         std::to_string(cap.max_send_sge) + " and receive_sge " + std::to_string(cap.max_recv_sge) +
         " (at most " + most_sge + ")";
}

}  // namespace

std::unique_ptr<QueuePair> QueuePair::create(std::shared_ptr<ProtectionDomain> domain,
                                             std::shared_ptr<CompletionQueue> send_queue,
                                             std::shared_ptr<CompletionQueue> receive_queue,
                                             const QueuePairOptions& options,
                                             std::shared_ptr<SharedReceiveQueue> shared) {
  const Device& device = domain->device();
  ibv_qp_init_attr wanted{};
  wanted.send_cq = send_queue->handle();
  wanted.recv_cq = receive_queue->handle();
  wanted.cap = clip(options, device.attributes());
  if (shared) {
    wanted.srq = shared->handle();
    wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 0;
  }
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all =
      0;  // selective signalling: each work request decides whether it raises a completion
  Handle handle(create_with_inline(device.verbs(), domain->handle(), wanted),
                Destroy{{&device.verbs()}});
  if (handle == nullptr) {
    const int error_number = errno;  // building the message may change it
    driver::throw_verbs_error(describe(wanted.cap, device), error_number);
  }
  QueuePairOptions granted = options;
  granted.send_depth = wanted.cap.max_send_wr;
  granted.receive_depth = wanted.cap.max_recv_wr;
  granted.send_sge = wanted.cap.max_send_sge;
  granted.receive_sge = wanted.cap.max_recv_sge;
  granted.inline_bytes = wanted.cap.max_inline_data;
  return std::unique_ptr<QueuePair>(new QueuePair(std::move(domain), std::move(send_queue),
                                                  std::move(receive_queue), std::move(shared),
                                                  std::move(handle), granted));
}

QueuePair::QueuePair(std::shared_ptr<ProtectionDomain> domain,
                     std::shared_ptr<CompletionQueue> send_queue,
                     std::shared_ptr<CompletionQueue> receive_queue,
                     std::shared_ptr<SharedReceiveQueue> shared, Handle handle,
                     QueuePairOptions options)
    : domain_(std::move(domain)),
      send_queue_(std::move(send_queue)),
      receive_queue_(std::move(receive_queue)),
      shared_(std::move(shared)),
      handle_(std::move(handle)),
      options_(options),
      psn_(random_psn()) {}

void QueuePair::Destroy::operator()(ibv_qp* qp) const noexcept {
  if (is_this_process()) driver::report_errno(verbs->destroy_qp(qp), "ibv_destroy_qp");
}

std::uint32_t random_psn() { return random_u32() & kPsnMask; }

QueuePairAddress address_of(const Device& device, const QueuePairOptions& options,
                            std::uint32_t number, std::uint32_t psn) {
  const ibv_port_attr port = device.port_attributes();
  const ibv_device_attr& limits = device.attributes();
  const std::uint8_t most_reads = options.rd_atomic;
  return {.number = number,
          .psn = psn,
          .gid = device.gid().value,
          .lid = port.lid,
          .mtu = std::min(options.mtu, static_cast<std::uint8_t>(port.active_mtu)),
          .reads_in = std::min(most_reads, as_byte(limits.max_qp_rd_atom)),
          .reads_out = std::min(most_reads, as_byte(limits.max_qp_init_rd_atom))};
}

QueuePairAddress QueuePair::address() const {
  return address_of(device(), options_, number(), psn_);
}

ibv_qp_state QueuePair::state() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr created{};
  driver::check_errno(device().verbs().query_qp(handle_.get(), &attributes, IBV_QP_STATE, &created),
                      "ibv_query_qp of queue pair " + std::to_string(number()));
  return attributes.qp_state;
}

}  // namespace zerohop::rdma
