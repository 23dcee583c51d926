#include "gda/proxy_ring.hpp"

#include <atomic>

#include "gda/address.hpp"

namespace zerohop::gda {
namespace {

constexpr std::uint32_t kNumber = 1;  // of the queue pair, as named in entries
constexpr std::size_t kResultNbytes = ProxyRing::kBlocks * sizeof(std::uint64_t);

}  // namespace

ProxyRing::ProxyRing()
    : sends_(kNumber, kBlocks, nullptr),
      completions_(kNumber, kBlocks, nullptr),
      results_(kResultNbytes, nullptr, 0) {}

device::RingWay ProxyRing::describe() const {
  mlx5dv_qp qp{};
  mlx5dv_cq cq{};
  sends_.describe(qp);
  completions_.describe(cq);
  device::RingWay way;
  way.ring = {.entries = address_of(qp.sq.buf),
              .record = address_of(&qp.dbrec[MLX5_SND_DBR]),
              .doorbell = 0,
              .completions = address_of(cq.buf),
              .consumed = address_of(&cq.dbrec[0]),
              .state = 0,
              .queue_pair = kNumber,
              .blocks = kBlocks,
              .places = kBlocks};
  way.results = address_of(results_.ring());
  return way;
}

std::array<std::span<std::byte>, 3> ProxyRing::pages() const {
  return {sends_.memory().all(), completions_.memory().all(), results_.all()};
}

const softhca::Wqe* ProxyRing::next() noexcept {
  if (!sends_.has_due()) sends_.read_record();
  return sends_.has_due() ? &sends_.take() : nullptr;
}

bool ProxyRing::complete(std::uint64_t index, ibv_wc_status status) noexcept {
  ibv_wc completion{};
  completion.wr_id = index;
  completion.status = status;
  completion.opcode = IBV_WC_RDMA_WRITE;
  completion.qp_num = kNumber;
  return completions_.push(completion);
}

bool ProxyRing::put_result(std::uint64_t at, std::uint64_t value) noexcept {
  const std::uint64_t offset = at - address_of(results_.ring());
  if (offset % sizeof value != 0 || offset >= kResultNbytes) return false;
  auto* const words = reinterpret_cast<std::uint64_t*>(results_.ring());
  std::atomic_ref(words[offset / sizeof value]).store(value, std::memory_order_release);
  return true;
}

}  // namespace zerohop::gda
