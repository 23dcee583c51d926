#include "engine/path/verbs/direct_queue_pair.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "driver/mlx5_syndromes.hpp"
#include "driver/verbs.hpp"
#include "rdma/devx_queue_pair.hpp"
#include "rdma/verbs_ring_pair.hpp"
#include "softhca/direct.hpp"
#include "zerohop/mlx5.h"

namespace zerohop::engine {
namespace {

std::shared_ptr<const driver::Mlx5dv> mlx5dv_of(const Rail& rail) {
  if (rail.software()) return softhca::mlx5dv();
  const auto& library = driver::libmlx5();
  if (!library.mlx5dv)
    throw RouteUnavailable("kernels cannot drive queue pairs: " + library.reason);
  // Asked for, because names say nothing: udev renames mlx5_0 to rocep1s0 and the like.
  if (!library.mlx5dv->is_supported(rail.device().context()->device)) {
    throw RouteUnavailable("kernels cannot drive queue pairs of device " + rail.name() +
                           ": it is no mlx5 adapter, whose rings they know");
  }
  return library.mlx5dv;
}

rdma::QueuePairOptions options_of_ring(rdma::QueuePairOptions options) {
  options.send_depth = DirectQueuePair::kEntries;
  options.receive_depth = 1;
  options.send_sge = 1;
  options.inline_bytes = device::mlx5::kMostInline;
  return options;
}

constexpr std::uint32_t kMostBlocks =
    rdma::VerbsRingPair::kMostBlocksOfEntry * DirectQueuePair::kEntries;
constexpr std::uint32_t kCompletions = 2 * kMostBlocks;  // never full
constexpr std::size_t kBlock = device::mlx5::kBlockBytes;
constexpr std::size_t kResultsNbytes = (kMostBlocks + 1) * sizeof(std::uint64_t);

const char* name_of(RingPlace place) {
  return place == RingPlace::gpu ? "the GPU's" : "the host's";
}

std::string shown(const RingPlaces& places) {
  return std::string("its send queue lies in ") + name_of(places.sends) +
         " memory, its completion queue in " + name_of(places.completions);
}

}  // namespace

DirectQueuePair::DirectQueuePair(const Rail& rail, const rdma::QueuePairOptions& options,
                                 const RingPlaces& places,
                                 const std::shared_ptr<const gpu::Device>& gpu,
                                 const Deadline& deadline)
    : software_(rail.software()),
      mlx5dv_(mlx5dv_of(rail)),
      has_second_path_(driver::has_data_direct(*mlx5dv_, rail.device().context())),
      places_(shown(places)) {
  const bool all_on_host = places.sends == RingPlace::host && places.completions == RingPlace::host;
  const std::size_t completions_at = rdma::DevxRing::nbytes_of(kMostBlocks);
  const std::size_t results_at = completions_at + rdma::DevxRing::nbytes_of(kCompletions);
  if (!all_on_host) {
    on_gpu_ = std::make_unique<GpuRings>(gpu, results_at + kResultsNbytes, deadline);
  }
  const rdma::QueuePairOptions wanted = options_of_ring(options);
  if (all_on_host) {
    pair_ = std::make_unique<rdma::VerbsRingPair>(rail.domain(), *mlx5dv_, wanted);
  } else if (software_) {
    make_on_software(rail, wanted, places, completions_at);
  } else {
    make_by_devx(rail, wanted, places, completions_at);
  }
  make_results(rail, places.completions, results_at);
  check_layout(rail);
}

// The software HCA reads and writes rings on a GPU by copies.
void DirectQueuePair::make_on_software(const Rail& rail, const rdma::QueuePairOptions& options,
                                       const RingPlaces& places, std::size_t completions_at) {
  const auto placed = [&](RingPlace place, std::size_t at, std::uint32_t count) {
    if (place == RingPlace::host) return rdma::PlacedRing{};
    return rdma::PlacedRing{on_gpu_->at(at), count * kBlock, on_gpu_->copier()};
  };
  pair_ = std::make_unique<rdma::VerbsRingPair>(
      rail.domain(), *mlx5dv_, options, placed(places.sends, 0, kMostBlocks),
      placed(places.completions, completions_at, kCompletions));
}

void DirectQueuePair::make_by_devx(const Rail& rail, const rdma::QueuePairOptions& options,
                                   const RingPlaces& places, std::size_t completions_at) {
  using rdma::DevxQueuePair;
  const auto lay_out = [&](RingPlace place, std::size_t at, std::uint32_t count) {
    const std::size_t nbytes = rdma::DevxRing::nbytes_of(count);
    if (place == RingPlace::gpu) {
      return rdma::DevxRing{on_gpu_->show(at, nbytes), on_gpu_->at(at), count};
    }
    pages_.push_back(std::make_unique<driver::RingMemory>(nbytes, nullptr, 0));
    std::byte* const ring = pages_.back()->ring();
    return rdma::DevxRing{{{reinterpret_cast<std::uintptr_t>(ring), nbytes, -1}}, ring, count};
  };
  const rdma::DevxRing sends = lay_out(places.sends, 0, kMostBlocks);
  const rdma::DevxRing completions = lay_out(places.completions, completions_at, kCompletions);
  std::array<std::byte, kBlock> invalid{};
  invalid.back() = std::byte{DevxQueuePair::kInvalidEntry};
  if (places.completions == RingPlace::gpu) {
    on_gpu_->fill(completions.at, kCompletions * kBlock, invalid);
  } else {
    for (std::uint32_t i = 0; i < kCompletions; ++i) {
      std::ranges::copy(invalid, completions.at + i * kBlock);
    }
  }
  pair_ = std::make_unique<DevxQueuePair>(rail.domain(), mlx5dv_, sends, completions, options);
}

// Beside the completions: PCIe does not order writes to a GPU and to the host.
void DirectQueuePair::make_results(const Rail& rail, RingPlace place, std::size_t at) {
  using rdma::MemoryRegion;
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
  if (place == RingPlace::host) {
    pages_.push_back(std::make_unique<driver::RingMemory>(kResultsNbytes, nullptr, 0));
    results_ = reinterpret_cast<std::uintptr_t>(pages_.back()->ring());
    results_region_ = MemoryRegion::create(rail.domain(), pages_.back()->ring(),
                                           pages_.back()->all().size(), kAccess);
    return;
  }
  results_ = reinterpret_cast<std::uintptr_t>(on_gpu_->at(at));
  results_region_ = software_ ? MemoryRegion::create_copied(rail.domain(), results_, kResultsNbytes,
                                                            kAccess, on_gpu_->copier())
                              : on_gpu_->register_part(rail.domain(), at, kResultsNbytes);
}

void DirectQueuePair::check_layout(const Rail& rail) const {
  const mlx5dv_qp& sends = pair_->sends();
  const mlx5dv_cq& completions = pair_->completions();
  const bool fits = sends.sq.stride == device::mlx5::kBlockBytes &&
                    completions.cqe_size == device::mlx5::kBlockBytes &&
                    completions.cqe_cnt >= sends.sq.wqe_cnt && sends.sq.wqe_cnt <= kMostBlocks;
  if (fits) return;
  throw RouteUnavailable("kernels cannot drive queue pairs of device " + rail.name() +
                         ": its rings (" + std::to_string(sends.sq.wqe_cnt) + " blocks of " +
                         std::to_string(sends.sq.stride) + " bytes, " +
                         std::to_string(completions.cqe_cnt) + " completions of " +
                         std::to_string(completions.cqe_size) + ") have an unsupported layout");
}

// A copy of the completions, of which the device writes the last byte last. It may still be at it.
std::vector<mlx5_err_cqe> DirectQueuePair::copy_completions() const {
  const mlx5dv_cq& ring = pair_->completions();
  std::vector<mlx5_err_cqe> entries(ring.cqe_cnt);
  const std::size_t nbytes = entries.size() * sizeof(mlx5_err_cqe);
  if (on_gpu(reinterpret_cast<std::uintptr_t>(ring.buf))) {
    std::memcpy(entries.data(), on_gpu_->read(ring.buf, nbytes).data(), nbytes);
    return entries;
  }
  auto* const there = static_cast<mlx5_err_cqe*>(ring.buf);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto shown = std::atomic_ref(there[i].op_own).load(std::memory_order_acquire);
    entries[i] = there[i];
    entries[i].op_own = shown;
  }
  return entries;
}

std::string DirectQueuePair::failure() const {
  if (pair_->state() != IBV_QPS_ERR) return "";
  std::vector<mlx5_err_cqe> entries;
  try {
    entries = copy_completions();
  } catch (const CudaError& error) {
    return std::string("which entry has failed is not known: ") + error.what();
  }
  for (const mlx5_err_cqe& entry : entries) {
    if (entry.op_own >> 4 != MLX5_CQE_REQ_ERR) continue;
    const ibv_wc_status status = driver::status_of_syndrome(entry.syndrome);
    if (status == IBV_WC_WR_FLUSH_ERR) continue;  // behind the one that failed
    return std::string(rdma::completion_status_name(status)) + " (syndrome " +
           std::to_string(entry.syndrome) + ", of the vendor " +
           std::to_string(entry.vendor_err_synd) + "): " + rdma::completion_status_help(status);
  }
  return "no entry of its own has failed: the peer is lost, or it closed its end";
}

DirectTarget::DirectTarget(const Rail& rail, const rdma::QueuePairOptions& options,
                           std::shared_ptr<Board> board, const rdma::QueuePairAddress& source)
    : board_(std::move(board)),
      queue_(rdma::CompletionQueue::create(rail.domain()->device_ptr(), 1)),
      slots_(rdma::MemoryRegion::create(rail.domain(), board_->pages().slots,
                                        sizeof(BoardPages::slots),
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
      queue_pair_(
          rdma::QueuePair::create(rail.domain(), queue_, queue_, options_of_ring(options))) {
  queue_pair_->to_init();
  queue_pair_->connect(source);
  board_->pages().kernels.fetch_add(1);  // their puts wake no thread
}

DirectTarget::~DirectTarget() { board_->pages().kernels.fetch_sub(1); }

}  // namespace zerohop::engine
