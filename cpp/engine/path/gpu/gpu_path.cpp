#include "engine/path/gpu/gpu_path.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "engine/memory/cuda_table.hpp"
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

GpuPath::GpuPath(Services services)
    : s_(std::move(services)),
      copies_(std::make_shared<GpuCopies>(s_.poller, s_.look, s_.pending)),
      captures_(s_.state->name()) {}

void GpuPath::meet(std::shared_ptr<RouteBook> book) {
  if (const auto& neighbour = s_.local->neighbour()) {
    gpus_ = std::make_unique<RemoteGpus>(neighbour, std::move(book));
  }
}

void GpuPath::end() noexcept {
  captures_.end();  // closes gates before what lies behind them is unmapped
  if (gpus_) gpus_->end();
  cut_off();
}

// The connection has ended: fails copies that do not end soon.
void GpuPath::cut_off() noexcept {
  copies_->cut_off(s_.state->lost(Effect::some));
  captures_.end();
}

void GpuPath::sweep() {
  captures_.sweep();
  if (gpus_) gpus_->sweep();
}

std::map<int, GpuMappings::Mapped> GpuPath::mapped() const {
  return gpus_ ? gpus_->mapped() : std::map<int, GpuMappings::Mapped>{};
}

// Chooses the GPU that copies: that of the local array; for a host array the GPU of the stream,
// otherwise any suitable one.
GpuReach GpuPath::reach(const Pair& pair, const Stream& stream,
                        const Neighbour::Patience& patience) const {
  if (!gpus_) return {.session = nullptr, .reason = s_.local->why_not()};
  const auto& [local, remote] = pair;
  if (!touch_gpus({&pair, 1})) {
    return {.session = nullptr,
            .reason = "some of the pairs lie in host memory: move those by a call of their own"};
  }
  if (remote->local_key == 0) {
    return {.session = nullptr, .reason = LocalPath::why_not_mapped()};
  }
  const auto device = local->registration()->device;
  GpuReach reached;
  if (remote->device == "cpu") {
    reached = gpus_->reach_host(*remote, device, patience);
  } else if (device) {
    reached = gpus_->reach(*remote, device, patience);
  } else if (stream) {
    reached = gpus_->reach_by_stream(*stream, *remote, s_.streams->cuda(), patience);
  } else {
    reached = gpus_->reach_by_any(*remote, s_.streams->cuda(), patience);
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
        local.registration()->pages->reach(reached.device, local.layout().extent(), until);
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

std::shared_ptr<const Route> GpuPath::route(const Pair& pair, std::string& why_not) const {
  if (pair.remote->layout.count() == 0) return s_.local->route(pair, why_not);
  GpuReach reached = reach(pair, {}, s_.local->patience({}));
  why_not = std::move(reached.reason);
  return why_not.empty() ? std::move(reached.route) : nullptr;
}

bool GpuPath::takes(const Call& call) const {
  const TransferOptions& options = call.options;
  if (!call.on_gpus && s_.pending->gpu_copies <= 0 && !notifies_in_stream(call)) return false;
  if (!options.may_be_p2p() || (!gpus_ && options.require.empty())) return false;
  return call.on_gpus || (!options.in_turn && call.nbytes() == 0);
}

TransferPtr GpuPath::begin(const Call& call, std::string& why_not) {
  if (auto begun = begin_at_once(call)) return begun;
  const TransferOptions& options = call.options;
  if (options.briefly) return nullptr;
  if (!gpus_) return why_not = s_.local->why_not(), nullptr;
  Move move;
  GpuReach reached;
  std::optional<PageSource> source;
  why_not = add_pairs(move, call, reached);
  if (!why_not.empty()) return nullptr;
  if (call.pages != nullptr) move.pieces = &source.emplace(*call.pages, reached, call.is_write());
  if (!reached.session) {
    reached.session = s_.local->neighbour()->reach_board(s_.local->patience(options)).session;
  }
  const Deadline until = s_.state->deadline(options.timeout);
  if (notifies_in_stream(call)) {
    move.device = gpus_->device_of(*options.stream, cuda_for_stream(s_.streams->cuda()));
  }
  if (!move.device) s_.streams->wait(options, until);
  if (!reached.session) return why_not = "its process does not answer", nullptr;
  if (is_captured(move, options)) {
    return capture(call, std::move(move), std::move(reached.session), until);
  }
  if (!s_.rails->wait_for_work(options)) {
    return why_not = "a device has earlier work with this peer pending", nullptr;
  }
  s_.pending->wait_for_host_copies(until);
  return begin_copy(call, std::move(move), std::move(reached.session), until);
}

// Fills `move`, with the ranges of whole arrays. reached: receives what was reached last. Returns
// why not; empty: success.
std::string GpuPath::add_pairs(Move& move, const Call& call, GpuReach& reached) const {
  const Neighbour::Patience patience = s_.local->patience(call.options);
  std::uint64_t key = 0;  // of `reached`
  move.nbytes = call.nbytes();
  for (const Pair& pair : call.pairs) {
    const auto& [local, remote] = pair;
    if (call.pages == nullptr) s_.state->check(pair, call.needed());
    auto registration = local->registration();
    if (remote->layout.count() == 0) {  // matters only for its place in a stream
      if (!move.device) move.device = registration->device;
      continue;
    }
    // Looks up a side again only if the pair lies outside what was found for the previous one.
    std::string why_not;
    if (remote->local_key != key || !GpuReach::covers(reached.remote, remote->layout.extent())) {
      reached = reach(pair, call.options.stream, patience);
      key = remote->local_key;
      why_not = reached.reason;
      if (why_not.empty()) why_not = hold(move, reached, call.is_write());
    } else if (move.kept.others.back() != registration ||
               !GpuReach::covers(reached.local, local->layout().extent())) {
      reach_local(reached, *local, patience);
      why_not = reached.reason;
    }
    const auto& copies = registration->device ? registration->device : reached.device;
    if (why_not.empty()) why_not = take_device(move, copies);
    if (!why_not.empty()) return why_not;
    if (!move.route) move.route = reached.route;
    if (call.pages == nullptr) add_ranges(move, pair, reached, call.is_write());
    auto& owners = move.kept.others;
    if (owners.empty() || owners.back() != registration) owners.push_back(std::move(registration));
  }
  return "";
}

void GpuPath::add_ranges(Move& move, const Pair& pair, const GpuReach& reached, bool is_write) {
  GpuRanges ranges(reached.local.span(), reached.remote.span(), is_write);
  Runs runs(pair.local->layout(), pair.remote->layout);
  for (Run run{}; runs.next(run);) {
    while (run.nbytes > 0) move.ranges.push_back(ranges.cut(run, run.nbytes));
  }
}

TransferPtr GpuPath::begin_at_once(const Call& call) {
  const TransferOptions& options = call.options;
  if (!gpus_ || call.pages != nullptr || call.pairs.size() != 1) return nullptr;
  const auto& [local, remote] = std::tie(*call.pairs.front().local, *call.pairs.front().remote);
  if (options.stream || options.notify || local.on_host() || remote.on_host()) return nullptr;
  const bool is_write = call.is_write();
  s_.state->check(call.pairs.front(), call.needed());
  const Run run = single_run(call.pairs.front());
  if (run.nbytes == 0) return nullptr;
  auto registration = local.registration();
  const std::shared_ptr<const gpu::Device> device = registration->device;
  const auto way = gpus_->known(remote.local_key, device->ordinal());
  const auto place = way ? way->place.lock() : nullptr;
  const auto session = way ? way->session.lock() : nullptr;
  if (!place || !session || !place->mapping->covers(run.b_address, run.b_address + run.nbytes) ||
      (is_write && !place->mapping->writable)) {
    return nullptr;
  }
  if (s_.pending->host_copies > 0 || s_.rails->work().pending) return nullptr;
  GpuReach::Held held{{place->mapping, place}, shm::LocalSession::hold(session, *place->mapping)};
  // Checked after the hold: either this sees the end, or the owner sees the hold.
  if (session->refusal(place->mapping.get()) != shm::Copied::all) return nullptr;
  const std::uint64_t there = place->memory->at(run.b_address);
  const gpu::CopyPiece range{.from = is_write ? run.a_address : there,
                             .to = is_write ? there : run.a_address,
                             .nbytes = run.nbytes};
  const Deadline until = s_.state->deadline(options.timeout);
  auto transfer = std::make_shared<Transfer>(s_.poller, run.nbytes, way->route);
  count_operation(*transfer, call.opcode, /*data=*/true, /*notifies=*/false, s_.state->name());
  GpuCopies::Work work{.transfer = transfer, .finish = nullptr, .kept = {}};
  work.kept.mappings.push_back(std::move(held));
  work.kept.others.push_back(std::move(registration));
  copies_->begin(
      {.device = device, .ranges = {&range, 1}, .nbytes = run.nbytes, .stream = {}, .put = {}},
      std::move(work), until);
  if (!s_.state->alive()) cut_off();
  return transfer;
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

TransferPtr GpuPath::begin_copy(const Call& call, Move&& move,
                                std::shared_ptr<shm::LocalSession> session, const Deadline& until) {
  const TransferOptions& options = call.options;
  if (!move.route) move.route = s_.local->neighbour()->route(nullptr);  // a notification alone
  auto transfer = std::make_shared<Transfer>(s_.poller, move.nbytes, std::move(move.route));
  NeighbourEnd after{.transfer = transfer, .session = std::move(session), .message = {}};
  if (options.notify) after.message = notify_message(*options.notify);
  count_operation(*transfer, call.opcode, !call.pairs.empty(), options.notify.has_value(),
                  s_.state->name());
  GpuCopies::Copy copy{.device = move.device,
                       .ranges = move.ranges.span(),
                       .pieces = move.pieces,
                       .nbytes = move.nbytes,
                       .stream = options.stream,
                       .put = {}};
  if (options.notify && copy.device) let_gpu_put(copy, move, after, s_.local->patience(options));
  const bool nothing_to_do = move.nbytes == 0 && !copy.stream;
  GpuCopies::Work work{.transfer = transfer,
                       .notifies = options.notify && !after.put_by_gpu,
                       .finish = nullptr,
                       .kept = std::move(move.kept)};
  if (options.notify) {
    work.finish = [local = s_.local, after = std::move(after)] {
      local->finish(after, Room::take);
    };
  }
  if (nothing_to_do || !copy.device) {
    copies_->follow(std::move(work), until);
  } else {
    copies_->begin(copy, std::move(work), until);
  }
  if (!s_.state->alive()) cut_off();
  return transfer;
}

// Lets the GPU put the notification itself, right behind its copies, if that cannot overtake
// earlier work: what devices carry, and copies that must end first.
void GpuPath::let_gpu_put(GpuCopies::Copy& copy, Move& move, NeighbourEnd& after,
                          const Neighbour::Patience& patience) {
  if (move.nbytes == 0 && !copy.stream) return;
  if (s_.rails->work().unseen || copies_->notifies()) return;
  if (!copy.stream && s_.pending->gpu_copies > 0) return;
  auto place = gpus_->place_for_gpu(after.session, copy.device, *after.message, patience);
  if (place.put.slot == 0) return;
  copy.put = place.put;
  move.kept.others.push_back(std::move(place.pages));
  if (place.mirror.hold) move.kept.mappings.push_back(std::move(place.mirror));
  after.put_by_gpu = true;
}

}  // namespace zerohop::engine
