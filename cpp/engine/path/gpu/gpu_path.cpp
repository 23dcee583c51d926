#include "engine/path/gpu/gpu_path.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "engine/path/gpu/gpu_ranges.hpp"

namespace zerohop::engine {
namespace {

// Time for another thread that page-locks the same pages; it rarely takes longer.
constexpr double kMoment = 1.0;

// For pages copied by a GPU.
class PageSource : public gpu::PieceSource {
 public:
  PageSource(const Pages& pages, const GpuReach& reached, bool is_write)
      : runs_(pages), ranges_(reached.local.span(), reached.remote.span(), is_write) {
    advance();
  }
  std::uint32_t fill(gpu::CopyPiece* into, std::uint32_t room, std::uint64_t most) override {
    std::uint32_t count = 0;
    for (; count < room && run_.nbytes > 0; advance()) into[count++] = ranges_.cut(run_, most);
    return count;
  }
  bool more() const noexcept override { return run_.nbytes > 0; }

 private:
  void advance() {
    if (run_.nbytes == 0 && !runs_.next(run_)) run_ = {};
  }

  PageRuns runs_;
  GpuRanges ranges_;
  Run run_{};  // the rest of it
};

}  // namespace

void GpuPath::meet(std::shared_ptr<RouteBook> book) {
  if (const auto& neighbour = local_->neighbour()) {
    gpus_ = std::make_unique<RemoteGpus>(neighbour, std::move(book));
  }
}

void GpuPath::leave() noexcept {
  if (gpus_) gpus_->leave();
}

std::map<int, GpuMappings::Mapped> GpuPath::mapped() const {
  return gpus_ ? gpus_->mapped() : std::map<int, GpuMappings::Mapped>{};
}

// Chooses the GPU that copies: that of the local array; for a host array the GPU of the stream,
// otherwise any suitable one.
GpuReach GpuPath::reach(const Pair& pair, const Stream& stream,
                        const Neighbour::Patience& patience) const {
  if (!gpus_) return {.session = nullptr, .reason = local_->why_not()};
  const auto& [local, remote] = pair;
  if (!touch_gpus({&pair, 1})) {
    return {.session = nullptr,
            .reason = "some of the pairs lie in host memory: move those by a call of their own"};
  }
  if (remote->local_key == 0) {
    return {
        .session = nullptr,
        .reason =
            "its owner does not let the remote memory be mapped, as it can be revoked (a Grant)"};
  }
  const auto device = local->pinned()->device;
  GpuReach reached;
  if (remote->device == "cpu") {
    reached = gpus_->reach_host(*remote, device, patience);
  } else if (device) {
    reached = gpus_->reach(*remote, device, patience);
  } else if (stream) {
    reached = gpus_->reach_by_stream(*stream, *remote, streams_->cuda(), patience);
  } else {
    reached = gpus_->reach_by_any(*remote, streams_->cuda(), patience);
  }
  if (!reached.reason.empty()) return reached;
  reach_local(reached, *local, patience);
  reached.route = gpus_->route(reached, local->on_host(), remote->device);
  if (!local->on_host()) gpus_->remember(remote->local_key, reached);
  return reached;
}

// Sets where the GPU finds the local array, or the reason why it cannot.
void GpuPath::reach_local(GpuReach& reached, const Memory& local,
                          const Neighbour::Patience& patience) {
  reached.local.clear();
  if (!local.on_host()) return reached.local.push_back({});  // a GPU array: any range, unshifted
  try {
    const Deadline until = Deadline::after(Deadline::Seconds(std::min(patience.seconds, kMoment)));
    const auto ranges =
        local.pinned()->pages->reach(reached.device, local.layout().extent(), until);
    for (const Extent& range : ranges) reached.local.push_back({range.begin, range.end, 0});
  } catch (const RouteUnavailable& error) {
    reached.reason = error.what();
  }
}

// Sets the GPU that makes all copies of one call. Returns why another GPU is needed; empty:
// success.
std::string GpuPath::take_device(Move& move, const std::shared_ptr<const gpu::Device>& device) {
  if (move.device && move.device->ordinal() != device->ordinal()) {
    return "the arrays lie on several GPUs: move each by a call of its own";
  }
  move.device = device;
  return "";
}

// Null, with the reason, if a device must move it.
Transferring GpuPath::copy(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                           const TransferOptions& options, std::string& reason) {
  if (!gpus_) return reason = local_->why_not(), nullptr;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  const Neighbour::Patience patience = local_->patience(options);
  Move move;
  GpuReach reached;  // of the previous pair, with its key
  std::uint64_t key = 0;
  for (const Pair& pair : pairs) {
    state_->check(pair, needed_by(opcode));
    const auto& [local, remote] = pair;
    auto pinned = local->pinned();
    if (remote->layout.count() == 0) {  // matters only for its place in a stream
      if (!move.device) move.device = pinned->device;
      continue;
    }
    // Looks up a side again only if the pair lies outside what was found for the previous one.
    if (remote->local_key != key || !GpuReach::covers(reached.remote, remote->layout.extent())) {
      reached = reach(pair, options.stream, patience);
      key = remote->local_key;
      reason = reached.reason;
      if (reason.empty()) reason = hold(move, reached, is_write);
    } else if (move.kept.others.back() != pinned ||
               !GpuReach::covers(reached.local, local->layout().extent())) {
      reach_local(reached, *local, patience);
      reason = reached.reason;
    }
    const auto& copies = pinned->device ? pinned->device : reached.device;
    if (reason.empty()) reason = take_device(move, copies);
    if (!reason.empty()) return nullptr;
    if (!move.route) move.route = reached.route;
    move.nbytes += local->layout().nbytes();
    GpuRanges ranges(reached.local.span(), reached.remote.span(), is_write);
    Runs runs(local->layout(), remote->layout);
    for (Run run{}; runs.next(run);) {
      while (run.nbytes > 0) move.ranges.push_back(ranges.cut(run, run.nbytes));
    }
    auto& owners = move.kept.others;
    if (owners.empty() || owners.back() != pinned) owners.push_back(std::move(pinned));
  }
  if (!reached.session) reached.session = local_->neighbour()->reach_board(patience).session;
  return begin(opcode, std::move(move), std::move(reached.session), options, reason);
}

Transferring GpuPath::copy_pages(ibv_wr_opcode opcode, const Pages& pages,
                                 const TransferOptions& options, std::string& reason) {
  const Pair whole{pages.local, pages.remote};
  if (!gpus_) return reason = local_->why_not(), nullptr;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  auto pinned = pages.local->pinned();
  auto reached = reach(whole, options.stream, local_->patience(options));
  if (!reached.reason.empty()) return reason = std::move(reached.reason), nullptr;
  Move move;
  move.device = reached.device;
  move.nbytes = pages.nbytes();
  move.route = reached.route;
  reason = hold(move, reached, is_write);
  if (!reason.empty()) return nullptr;
  move.kept.others.push_back(std::move(pinned));
  PageSource source(pages, reached, is_write);
  move.pieces = &source;
  return begin(opcode, std::move(move), std::move(reached.session), options, reason);
}

Transferring GpuPath::copy_at_once(ibv_wr_opcode opcode, const Pair& pair,
                                   const TransferOptions& options) {
  const auto& [local, remote] = std::tie(*pair.first, *pair.second);
  const bool fits = !options.stream && !options.notify && !local.on_host() && !remote.on_host();
  if (!gpus_ || !fits) return nullptr;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  state_->check(pair, needed_by(opcode));
  const Run run = single_run(pair);
  if (run.nbytes == 0) return nullptr;
  auto pinned = local.pinned();
  const std::shared_ptr<const gpu::Device> device = pinned->device;
  const auto way = gpus_->known(remote.local_key, device->ordinal());
  const auto place = way ? way->place.lock() : nullptr;
  const auto session = way ? way->session.lock() : nullptr;
  if (!place || !session || !place->mapping->covers(run.b_address, run.b_address + run.nbytes) ||
      (is_write && !place->mapping->writable)) {
    return nullptr;
  }
  if (local_->copies_queued() || staged_->device_work().pending) return nullptr;
  GpuReach::Held held{{place->mapping, place}, shm::LocalSession::hold(session, *place->mapping)};
  // Checked after the hold: either this sees the end, or the owner sees the hold.
  if (session->refusal(place->mapping.get()) != shm::Copied::all) return nullptr;
  const std::uint64_t there = place->memory->at(run.b_address);
  const gpu::CopyPiece range{.from = is_write ? run.a_address : there,
                             .to = is_write ? there : run.a_address,
                             .nbytes = run.nbytes};
  const Deadline until = state_->deadline(options.timeout);
  auto transfer = std::make_shared<Transfer>(poller_, run.nbytes, way->route);
  count_begin(*transfer, opcode, /*data=*/true, /*notifies=*/false, state_->name());
  GpuCopies::Work work{.transfer = transfer, .finish = nullptr, .kept = {}};
  work.kept.mappings.push_back(std::move(held));
  work.kept.others.push_back(std::move(pinned));
  copies_->begin(
      {.device = device, .ranges = {&range, 1}, .nbytes = run.nbytes, .stream = {}, .put = {}},
      std::move(work), until);
  if (!state_->alive()) local_->cut_off_gpu_copies();
  return transfer;
}

// For memory already reached.
Transferring GpuPath::begin(ibv_wr_opcode opcode, Move&& move,
                            std::shared_ptr<shm::LocalSession> session,
                            const TransferOptions& options, std::string& reason) {
  const Deadline until = state_->deadline(options.timeout);
  if (!move.device) streams_->wait(options, until);
  if (!session) return reason = "its process does not answer", nullptr;
  if (!local_->wait_for_devices(options)) {
    return reason = "a device has earlier work with this peer pending", nullptr;
  }
  local_->wait_for_host_copies(until);
  return begin_copy(opcode, std::move(move), std::move(session), options, until);
}

// Keeps the memory from being taken away by its owner during the move. Returns why not; empty:
// success.
std::string GpuPath::hold(Move& move, const GpuReach& reached, bool is_write) {
  auto& held = move.kept.mappings;
  for (const auto& part : reached.parts) {
    const shm::RemoteMapping& mapping = *part.mapping;
    if (is_write && !mapping.writable) return "it is read-only";
    if (!held.empty() && held.back().part.mapping == part.mapping) continue;
    held.push_back({part, shm::LocalSession::hold(reached.session, mapping)});
    // Checked after the hold: either this sees the end, or the owner sees the hold.
    if (reached.session->refusal(&mapping) != shm::Copied::all) {
      return "its owner closed that memory, or ended the connection";
    }
  }
  return "";
}

Transferring GpuPath::begin_copy(ibv_wr_opcode opcode, Move&& move,
                                 std::shared_ptr<shm::LocalSession> session,
                                 const TransferOptions& options, const Deadline& until) {
  if (!move.route) move.route = local_->neighbour()->route(nullptr);  // a notification alone
  auto transfer = std::make_shared<Transfer>(poller_, move.nbytes, std::move(move.route));
  NeighbourEnd after{.transfer = transfer, .session = std::move(session), .message = {}};
  if (options.notify) after.message = notify_message(*options.notify);
  count_begin(*transfer, opcode, move.device != nullptr, options.notify.has_value(),
              state_->name());
  GpuCopies::Copy copy{.device = move.device,
                       .ranges = move.ranges.span(),
                       .pieces = move.pieces,
                       .nbytes = move.nbytes,
                       .stream = options.stream,
                       .put = {}};
  if (options.notify && copy.device) let_gpu_put(copy, move, after, local_->patience(options));
  const bool nothing_to_do = move.nbytes == 0 && !copy.stream;
  GpuCopies::Work work{.transfer = transfer,
                       .notifies = options.notify && !after.put_by_gpu,
                       .finish = nullptr,
                       .kept = std::move(move.kept)};
  if (options.notify) {
    work.finish = [local = local_, after = std::move(after)] { local->finish(after, Room::take); };
  }
  if (nothing_to_do || !copy.device) {
    copies_->follow(std::move(work), until);
  } else {
    copies_->begin(copy, std::move(work), until);
  }
  if (!state_->alive()) local_->cut_off_gpu_copies();
  return transfer;
}

// Lets the GPU put the notification itself, right behind its copies, if that cannot overtake
// earlier work: what devices carry, and copies that must end first.
void GpuPath::let_gpu_put(GpuCopies::Copy& copy, Move& move, NeighbourEnd& after,
                          const Neighbour::Patience& patience) {
  if (move.nbytes == 0 || staged_->device_work().unseen || copies_->notifies()) return;
  if (!copy.stream && copies_->pending()) return;
  auto place = gpus_->place_for_gpu(after.session, copy.device, *after.message, patience);
  if (place.put.slot == 0) return;
  copy.put = place.put;
  move.kept.others.push_back(std::move(place.pages));
  if (place.mirror.hold) move.kept.mappings.push_back(std::move(place.mirror));
  after.put_by_gpu = true;
}

}  // namespace zerohop::engine
