#include "qp.hpp"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "batch.hpp"
#include "softhca/context.hpp"
#include "softhca/queue_pair.hpp"
#include "softhca/wqe.hpp"

namespace zerohop::mlx5sim {
namespace {

using softhca::kBlockBytes;
using softhca::Wqe;

// What no queue pair carries out: it completes in its turn, with an error.
void make_refused(Wqe& entry) {
  entry.work.opcode = IBV_WR_RDMA_WRITE;
  entry.work.send_flags = IBV_SEND_SIGNALED;
  entry.work.num_sge = 1;
  entry.elements[0] = {0, 1, 0};  // no key is 0
}

}  // namespace

ibv_qp_state state_of(ibv_qp* soft) {
  softhca::QueuePair& qp = softhca::QueuePair::of(soft);
  const std::lock_guard guard(qp.lock);
  return qp.state;
}

Qp::Qp(const QpRings& rings, ibv_qp* soft_qp, Cq& sends, Cq& receives, Srq* shared,
       const ibv_qp_cap& granted, std::uint64_t handle)
    : soft(soft_qp),
      send_cq(sends),
      receive_cq(receives),
      srq(shared),
      user_handle(handle),
      cap(granted),
      rings_(rings) {
  ++send_cq.users;
  ++receive_cq.users;
  if (srq != nullptr) ++srq->users;
  softhca::QueuePair& below = softhca::QueuePair::of(soft);
  const std::lock_guard guard(below.lock);
  below.receive_source = this;
}

Qp::~Qp() {
  --send_cq.users;
  --receive_cq.users;
  if (srq != nullptr) --srq->users;
}

bool Qp::take_sends(Batch& batch) {
  if (rings_.send_blocks == 0) return false;
  const ibv_qp_state state = state_of(soft);
  if (state != IBV_QPS_RTS && state != IBV_QPS_ERR) return false;  // later, if ever
  rung = false;
  const auto posted = rings_.record.word(MLX5_SND_DBR);
  const auto due = static_cast<std::uint16_t>(posted.value_or(sends_taken_));
  if (sends_taken_ == due) return false;
  std::uint16_t at = sends_taken_;
  batch.count = 0;
  while (at != due) {
    Batch::Entry& entry = batch.entries[batch.count++];
    const auto copy = [&](std::uint32_t block) {
      const std::size_t place = (at + block) & (rings_.send_blocks - 1);
      const auto to = std::span(entry.bytes).subspan(block * kBlockBytes, kBlockBytes);
      // What cannot be read is refused, as no entry.
      if (!rings_.sends.read(place * kBlockBytes, to)) std::ranges::fill(to, std::byte{0});
    };
    copy(0);
    const std::uint32_t there = static_cast<std::uint16_t>(due - at);
    const std::uint32_t blocks =
        std::min(softhca::wqe_blocks(std::span(entry.bytes).first<kBlockBytes>()), there);
    for (std::uint32_t block = 1; block < blocks; ++block) copy(block);
    softhca::decode_wqe(std::span(entry.bytes).first(blocks * kBlockBytes), number(), at,
                        entry.decoded);
    entry.blocks = static_cast<std::uint16_t>(blocks);
    at = static_cast<std::uint16_t>(at + blocks);
    if ((batch.count == Batch::kMost || at == due) && !post(batch)) {
      rung = true;
      return true;
    }
  }
  return true;
}

// False if some of it has to wait.
bool Qp::post(Batch& batch) {
  for (std::size_t i = 0; i < batch.count; ++i) {
    Wqe& entry = batch.entries[i].decoded;
    if (entry.status != IBV_WC_SUCCESS) {
      malformed_[static_cast<std::uint16_t>(entry.work.wr_id)] = entry.status;
      make_refused(entry);
    }
    entry.work.next = i + 1 < batch.count ? &batch.entries[i + 1].decoded.work : nullptr;
  }
  std::size_t first = 0;
  int error = 0;
  while (first < batch.count) {
    ibv_send_wr* bad = nullptr;
    error = softhca::post_send(soft, &batch.entries[first].decoded.work, &bad);
    while (first < batch.count && (error == 0 || &batch.entries[first].decoded.work != bad)) {
      sends_taken_ = static_cast<std::uint16_t>(sends_taken_ + batch.entries[first].blocks);
      ++first;
    }
    if (error == 0) continue;
    Wqe& entry = batch.entries[first].decoded;
    const auto index = static_cast<std::uint16_t>(entry.work.wr_id);
    // It left RTS meanwhile, has no room, or does not do what even a refused one asks.
    if (error == ENOMEM || error == ENODEV || malformed_.contains(index)) break;
    malformed_[index] = IBV_WC_LOC_QP_OP_ERR;
    make_refused(entry);
  }
  const bool all = first == batch.count;
  batch.count = 0;
  return all;
}

bool Qp::take_receives() {
  if (rings_.receive_count == 0 || srq != nullptr) return false;
  softhca::QueuePair& below = softhca::QueuePair::of(soft);
  const std::lock_guard guard(below.lock);
  const bool taken = take_own_receives();
  if (taken && below.state == IBV_QPS_ERR) below.flush_queues();
  return taken;
}

void Qp::fetch() noexcept {
  if (srq != nullptr) {
    srq->take();
  } else {
    take_own_receives();
  }
}

bool Qp::take_own_receives() {
  softhca::QueuePair& below = softhca::QueuePair::of(soft);
  if (rings_.receive_count == 0 || below.state == IBV_QPS_RESET) return false;
  const auto word = rings_.record.word(MLX5_RCV_DBR);
  const auto posted = static_cast<std::uint16_t>(word.value_or(receives_taken_));
  if (posted == receives_taken_) return false;
  Receive receive;
  while (receives_taken_ != posted) {
    const std::uint32_t place = receives_taken_ & (rings_.receive_count - 1);
    read_receive(static_cast<std::uint16_t>(place), receive);
    receive.work.wr_id = place;
    if (below.receives.post(receive.work) != 0) break;  // full: later
    ++receives_taken_;
  }
  return true;
}

void Qp::reset() noexcept {
  {
    const std::lock_guard guard(softhca::QueuePair::of(soft).lock);
    receives_taken_ = 0;
  }
  sends_taken_ = 0;
  rung = failed_ = owes_last_receive = false;
  malformed_.clear();
  held_back_.clear();
}

void Qp::read_receive(std::uint16_t index, Receive& to) const {
  if (srq != nullptr) return srq->read(index, to);
  to.read(rings_.receives, index * rings_.receive_nbytes,
          rings_.receive_nbytes / sizeof(mlx5_wqe_data_seg));
}

// Takes out of the elements of a receive what has arrived there. Nothing if a part of it lies on a
// GPU, where no processor could put it back.
std::size_t Qp::take_out(const Receive& receive, std::span<std::byte> data) const {
  constexpr std::byte kNothing{0xEE};
  softhca::MemoryTable& memory = softhca::Context::of(soft->context).memory;
  softhca::Pins pins;
  std::array<std::span<std::byte>, Cq::kMostData> parts;
  std::size_t count = 0;
  std::size_t found = 0;
  for (const ibv_sge& element : std::span(receive.elements, receive.count())) {
    const auto part = std::min<std::size_t>(element.length, data.size() - found);
    if (part == 0) continue;
    const softhca::Place place =
        memory.pin(element.lkey, soft->pd, element.addr, part, IBV_ACCESS_LOCAL_WRITE, pins);
    if (!place || place.copier != nullptr) return 0;
    parts[count++] = {place.at, part};
    found += part;
  }
  std::size_t taken = 0;
  for (const std::span<std::byte> part : std::span(parts).first(count)) {
    std::ranges::copy(part, data.subspan(taken).begin());
    std::ranges::fill(part, kNothing);
    taken += part.size();
  }
  return taken;
}

// A short message lies in its completion, not yet where it belongs: libmlx5 copies it there when
// the program polls.
bool Qp::push_receive(const ibv_wc& completion, std::uint16_t index) {
  const bool fits = completion.byte_len > 0 && completion.byte_len <= receive_cq.room_for_data();
  const bool message = completion.status == IBV_WC_SUCCESS && completion.opcode == IBV_WC_RECV;
  std::array<std::byte, Cq::kMostData> data;
  std::size_t taken = 0;
  if (rings_.scatters && fits && message) {
    Receive receive;
    read_receive(index, receive);
    taken = take_out(receive, std::span(data).first(completion.byte_len));
  }
  return receive_cq.push(completion, index, rings_.user_index, std::span(data).first(taken));
}

bool Qp::complete(const ibv_wc& completion) {
  const bool arrived = (completion.opcode & IBV_WC_RECV) != 0;
  if (completion.status == IBV_WC_SUCCESS || failed_) return push(completion);
  if (arrived && completion.status == IBV_WC_WR_FLUSH_ERR) {
    held_back_.push_back(completion);
    return true;
  }
  const bool pushed = push(completion);
  return fail() && pushed;
}

bool Qp::fail() {
  failed_ = true;
  bool pushed = true;
  for (const ibv_wc& each : held_back_) pushed &= push(each);
  held_back_.clear();
  return pushed;
}

ibv_qp_state Qp::state_shown(ibv_qp_state below) const noexcept {
  return below == IBV_QPS_ERR && !failed_ ? set : below;
}

bool Qp::push(const ibv_wc& completion) {
  const auto index = static_cast<std::uint16_t>(completion.wr_id);
  if ((completion.opcode & IBV_WC_RECV) != 0) {
    return push_receive(completion, index);
  }
  ibv_wc told = completion;
  if (const auto found = malformed_.find(index); found != malformed_.end()) {
    if (told.status != IBV_WC_WR_FLUSH_ERR) told.status = found->second;
    malformed_.erase(found);
  }
  return send_cq.push(told, index, rings_.user_index);
}

}  // namespace zerohop::mlx5sim
