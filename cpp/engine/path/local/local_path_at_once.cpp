// The short ways between host arrays, if no earlier work must be waited for.
#include <array>
#include <span>
#include <tuple>

#include "base/ticks.hpp"
#include "engine/path/local/local_path.hpp"

namespace zerohop::engine {
namespace {

bool allows(const shm::RemoteMapping& mapping, std::uint64_t address, std::uint64_t nbytes,
            bool is_write) {
  return mapping.covers(address, address + nbytes) && (!is_write || mapping.writable);
}

}  // namespace

TransferPtr LocalPath::begin_at_once(const Call& call) {
  TransferPtr made;  // null unless a way succeeds
  if (call.pages != nullptr || call.pairs.size() > 1) return made;
  if (call.pairs.empty()) {
    notify_at_once(call.options, &made);
  } else {
    copy_at_once(call.opcode, call.pairs.front(), call.options, &made);
  }
  return made;
}

// One range that was reached before.
bool LocalPath::copy_at_once(ibv_wr_opcode opcode, const Pair& pair, const TransferOptions& options,
                             TransferPtr* made) {
  const auto& [local, remote] = std::tie(*pair.local, *pair.remote);
  if (!neighbour_ || options.stream) return false;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  s_.state->check(pair, needed_by(opcode));
  const Run run = single_run(pair);
  if (run.nbytes == 0 || run.nbytes > kCopiedInCall) return false;
  const auto way = neighbour_->known(remote.local_key);
  if (!way || !allows(*way->mapping, run.b_address, run.nbytes, is_write) ||
      !may_be_at_once(options) || (options.briefly && !way->mapping->pages)) {
    return false;
  }
  const Memory::Use used = local.use();  // keeps it alive during the copy
  if (!used) return false;
  const auto notify = [&](std::byte* board) noexcept {
    if (options.notify) Neighbour::notify(board, *way->session, notify_message(*options.notify));
  };
  return at_once(is_write ? Operation::write : Operation::read, run.nbytes, &*way->mapping, options,
                 made, [&] {
                   const auto direction = is_write ? shm::Direction::write : shm::Direction::read;
                   return way->session->copy(*way->mapping, direction, std::span(&run, 1), notify);
                 });
}

// A notification alone.
bool LocalPath::notify_at_once(const TransferOptions& options, TransferPtr* made) {
  if (!neighbour_ || options.stream || !options.notify) return false;
  const auto session = neighbour_->known_board();
  if (!session || !may_be_at_once(options)) return false;
  const auto notify = [&](std::byte* board) noexcept {
    Neighbour::notify(board, *session, notify_message(*options.notify));
  };
  return at_once(Operation::notify, 0, nullptr, options, made,
                 [&] { return session->at_board(notify, shm::Patience::none); });
}

// Whether there is no earlier work that it would overtake.
bool LocalPath::may_be_at_once(const TransferOptions& options) const {
  if (s_.pending->host_copies > 0 || s_.pending->gpu_copies > 0) return false;
  if (options.briefly && !s_.rails->group()->calm())
    return false;  // the lock of the devices may be held long
  const PeerRails::Work work = s_.rails->work();
  return !work.pending && !(work.unseen && options.notify);
}

template <typename MoveIt>
bool LocalPath::at_once(Operation operation, std::uint64_t nbytes,
                        const shm::RemoteMapping* mapping, const TransferOptions& options,
                        TransferPtr* made, MoveIt&& move) {
  const std::shared_ptr<const Route>& route = neighbour_->route(mapping);
  RouteStats& stats = *route->stats;
  TransferPtr transfer;
  if (made != nullptr) {
    transfer = std::make_shared<Transfer>(nullptr, nbytes, route);
    transfer->show(operation, s_.state->name());
    transfer->note_begun();
  } else if (!stats.logged.load(std::memory_order_relaxed)) {
    return false;  // the first transfer of a route is logged elsewhere
  }
  const std::uint64_t times = stats.times_of_next(operation);
  const std::uint64_t begun = times > 0 ? ticks::now() : 0;
  const shm::Copied outcome = move();
  if (outcome == shm::Copied::part && made != nullptr) {
    RouteStats::add(stats.failures, 1);
    transfer->fail(why_not_copied(shm::Copied::unmapped, Effect::some));
    transfer->end_at_once();
    *made = std::move(transfer);
    return true;
  }
  if (outcome != shm::Copied::all) return false;
  if (options.notify) RouteStats::add(stats.notifications, 1);
  stats.begin(operation, nbytes);
  if (times > 0) stats.end(operation, ticks::nanoseconds(begun, ticks::now()), times);
  if (made != nullptr) {
    transfer->end_at_once();
    *made = std::move(transfer);
  }
  return true;
}

bool LocalPath::put_at_once(const Parts& parts, const RemoteMemory& there,
                            const TransferOptions& options) {
  const std::uint64_t nbytes = parts.head.size() + parts.body.size();
  if (!neighbour_ || nbytes > kCopiedInCall) return false;
  const std::uint64_t address = there.layout.address;
  const auto way = neighbour_->known(there.local_key);
  if (!way || !allows(*way->mapping, address, nbytes, true) || !may_be_at_once(options)) {
    return false;
  }
  const auto run = [](std::span<const std::byte> part, std::uint64_t to) {
    return Run{reinterpret_cast<std::uint64_t>(part.data()), to, part.size()};
  };
  const std::array runs{run(parts.head, address), run(parts.body, address + parts.head.size())};
  const auto notify = [&](std::byte* board) noexcept {
    Neighbour::notify(board, *way->session, notify_message(*options.notify));
  };
  return at_once(Operation::write, nbytes, &*way->mapping, options, nullptr, [&] {
    const std::span used(runs.data(), parts.body.empty() ? 1 : 2);
    return way->session->copy(*way->mapping, shm::Direction::write, used, notify);
  });
}

}  // namespace zerohop::engine
