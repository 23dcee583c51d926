#include "gda/proxy_calls.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace zerohop::gda {
namespace {

// Transfers in progress: fewer than a path queues before its callers block.
constexpr std::size_t kMostBegun = 64;
constexpr std::size_t kMostOfBatch = 32;  // entries in one call

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("an entry that a kernel wrote " + what +
                              ": was its Queue changed, or the ring written to?");
}

std::uint64_t nbytes_of(const softhca::Wqe& entry) {
  std::uint64_t nbytes = 0;
  for (int i = 0; i < entry.work.num_sge; ++i) nbytes += entry.work.sg_list[i].length;
  return nbytes;
}

bool is_inline(const softhca::Wqe& entry) { return (entry.work.send_flags & IBV_SEND_INLINE) != 0; }

bool is_atomic(const softhca::Wqe& entry) {
  return entry.work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
         entry.work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

void check_within(const Layout& whole, std::uint64_t address, std::uint64_t nbytes) {
  const auto [begin, end] = whole.extent();
  if (address < begin || address > end || nbytes > end - address) refuse("leaves its array");
}

}  // namespace

ProxyCalls::ProxyCalls(ProxyEnds ends, ProxyRing& ring) : ends_(std::move(ends)), ring_(ring) {
  batch_.near.reserve(kMostOfBatch);
  batch_.far.reserve(kMostOfBatch);
}

bool ProxyCalls::take() noexcept {
  bool any = false;
  while (begun_.size() < kMostBegun) {
    const softhca::Wqe* const entry = ring_.next();
    if (entry == nullptr) break;
    any = true;
    const Turn turn{entry->work.wr_id, (entry->work.send_flags & IBV_SEND_SIGNALED) != 0};
    if (failed()) {
      give_up(turn);
      continue;
    }
    try {
      handle(*entry, turn);
    } catch (const std::exception& error) {
      fail(error.what());
      give_up(turn);
    }
  }
  begin_batch();
  return any;
}

// Drops the entry, and the batch that was to begin before it.
void ProxyCalls::give_up(const Turn& turn) {
  begin_batch();
  begun_.push_back({.transfer = nullptr, .turn = turn, .failed = true});
}

void ProxyCalls::handle(const softhca::Wqe& entry, const Turn& turn) {
  if (entry.status != IBV_WC_SUCCESS) refuse("is malformed");
  if (is_atomic(entry)) return fetch(entry, turn);
  const bool reads = entry.work.opcode == IBV_WR_RDMA_READ;
  if (!reads && entry.work.opcode != IBV_WR_RDMA_WRITE) refuse("has an unknown opcode");
  if (entry.work.num_sge == 0) {
    begin_batch();
    begun_.push_back({.transfer = nullptr, .turn = turn});
  } else if (is_inline(entry) && entry.work.wr.rdma.remote_addr >= kNotes) {
    notify(entry, turn);
  } else {
    const bool other = batch_.reads != reads || batch_.near.size() == kMostOfBatch;
    if (other) begin_batch();
    batch_.reads = reads;
    add(entry, turn);
  }
}

void ProxyCalls::add(const softhca::Wqe& entry, const Turn& turn) {
  const std::uint64_t nbytes = nbytes_of(entry);
  const std::uint64_t address = entry.work.wr.rdma.remote_addr;
  check_within(ends_.remote.layout, address, nbytes);
  batch_.near.push_back(near_of(entry));
  batch_.far.push_back(ends_.remote.range(address, nbytes));
  if (turn.tells || !batch_.turn.tells) batch_.turn = turn;
}

engine::Memory ProxyCalls::near_of(const softhca::Wqe& entry) const {
  if (is_inline(entry)) return keep_value(entry);
  if (entry.work.num_sge != 1) refuse("has several local ranges");
  const ibv_sge& range = entry.work.sg_list[0];
  check_within(ends_.local.layout(), range.addr, range.length);
  return ends_.local.range(range.addr, range.length);
}

// The value belongs to its block until the block is done.
engine::Memory ProxyCalls::keep_value(const softhca::Wqe& entry) const {
  const std::uint64_t nbytes = nbytes_of(entry);
  if (nbytes > kValueNbytes) refuse("carries too many bytes");
  const std::uint64_t block = entry.work.wr_id % ProxyRing::kBlocks;
  const std::uint64_t place = ends_.values.layout().address + block * kValueNbytes;
  auto* to = reinterpret_cast<std::byte*>(place);
  for (int i = 0; i < entry.work.num_sge; ++i) {
    const ibv_sge& part = entry.work.sg_list[i];
    std::memcpy(to, reinterpret_cast<const std::byte*>(part.addr), part.length);
    to += part.length;
  }
  return ends_.values.range(place, nbytes);
}

void ProxyCalls::notify(const softhca::Wqe& entry, const Turn& turn) {
  std::uint32_t value = 0;
  if (nbytes_of(entry) != sizeof value || entry.work.num_sge != 1) refuse("writes no notification");
  std::memcpy(&value, reinterpret_cast<const void*>(entry.work.sg_list[0].addr), sizeof value);
  const std::uint64_t slot = (entry.work.wr.rdma.remote_addr - kNotes) / sizeof value;
  if (slot >= engine::Board::kSlots) refuse("names no slot");
  if (batch_.reads) begin_batch();
  if (turn.tells || !batch_.turn.tells) batch_.turn = turn;
  begin_batch(engine::Notification{static_cast<std::uint32_t>(slot), value});
}

void ProxyCalls::fetch(const softhca::Wqe& entry, const Turn& turn) {
  begin_batch();
  if (failed()) return give_up(turn);
  const auto& asked = entry.work.wr.atomic;
  check_within(ends_.remote.layout, asked.remote_addr, sizeof(std::uint64_t));
  if (entry.work.num_sge != 1 || nbytes_of(entry) != sizeof(std::uint64_t)) {
    refuse("has no place for an old value");
  }
  engine::RemoteMemory word = ends_.remote;
  word.layout = Layout::contiguous(asked.remote_addr, {kDTypeUInt, 64, 1}, {});
  auto transfer = entry.work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD
                      ? ends_.peer->fetch_add(word, asked.compare_add, /*for_kernel=*/true)
                      : ends_.peer->compare_swap(word, asked.compare_add, asked.swap,
                                                 /*for_kernel=*/true);
  begun_.push_back({std::move(transfer), turn, entry.work.sg_list[0].addr});
}

void ProxyCalls::begin_batch(const std::optional<engine::Notification>& notification) {
  if (batch_.near.empty() && !notification) return;
  Begun begun{.transfer = nullptr, .turn = batch_.turn, .failed = failed()};
  try {
    if (!failed()) begun.transfer = call_batch(notification);
  } catch (const std::exception& error) {
    fail(error.what());
    begun.failed = true;
  }
  batch_.near.clear();
  batch_.far.clear();
  batch_.turn = {};
  batch_.reads = false;
  begun_.push_back(std::move(begun));
}

engine::TransferPtr ProxyCalls::call_batch(
    const std::optional<engine::Notification>& notification) {
  std::vector<engine::Peer::Pair> pairs;
  pairs.reserve(batch_.near.size());
  for (std::size_t i = 0; i < batch_.near.size(); ++i) {
    pairs.emplace_back(&batch_.near[i], &batch_.far[i]);
  }
  const engine::TransferOptions options{
      .notify = notification, .require = {}, .timeout = {}, .for_kernel = true};
  return batch_.reads ? ends_.peer->read(pairs, options) : ends_.peer->write(pairs, options);
}

bool ProxyCalls::retire() noexcept {
  bool any = false;
  for (; !begun_.empty(); begun_.pop_front()) {
    Begun& first = begun_.front();
    if (first.transfer) first.transfer->poll();
    if (first.transfer && !first.transfer->done()) break;
    finish(first);
    any = true;
  }
  return any;
}

void ProxyCalls::finish(Begun& first) noexcept {
  bool failed = first.failed;
  try {
    const std::uint64_t value = first.transfer ? first.transfer->result() : 0;
    if (first.result != 0 && !ring_.put_result(first.result, value)) {
      refuse("has an invalid address for the old value");
    }
  } catch (const std::exception& error) {
    failed = true;
    fail(error.what());
  }
  // A failed entry always gets a completion, as with adapters.
  if (!first.turn.tells && !failed) return;
  const auto status = failed ? IBV_WC_GENERAL_ERR : IBV_WC_SUCCESS;
  if (!ring_.complete(first.turn.index, status)) fail("kernels do not consume completions");
}

void ProxyCalls::fail(std::string_view why) noexcept {
  failed_ = true;
  const std::lock_guard lock(mutex_);
  try {
    if (error_.empty()) error_ = why;
  } catch (const std::bad_alloc&) {
    error_ = "out of memory";  // short enough to need no allocation
  }
}

std::string ProxyCalls::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace zerohop::gda
