// Stream capture on a nonexistent GPU, and what the kernels of captured calls do.
#include <memory>
#include <mutex>
#include <utility>

#include "fake_copies.hpp"

namespace zerohop::testing {

using driver::CudaResult;
using driver::kCudaErrorInvalidValue;
using driver::kCudaSuccess;

namespace {

struct UserObject {
  void* value;
  void (*destroy)(void*);
  ~UserObject() { destroy(value); }
};

}  // namespace

struct FakeCopies::Graph {
  std::vector<std::function<Task()>> nodes;
  std::vector<std::unique_ptr<UserObject>> objects;
};

void FakeCopies::give(Stream& stream, const std::function<Task()>& make) {
  if (stream.graph) return stream.graph->nodes.push_back(make);
  stream.waiting.push_back(make());
  ++stream.begun;
}

void FakeCopies::begin_capture(void* stream) {
  const std::lock_guard guard(mutex_);
  find_stream(stream)->graph = std::make_shared<Graph>();
}

std::shared_ptr<FakeCopies::Graph> FakeCopies::end_capture(void* stream) {
  const std::lock_guard guard(mutex_);
  const std::shared_ptr<Graph> graph = find_stream(stream)->graph;
  for (auto& [handle, each] : streams_) {
    if (each->graph == graph) each->graph = nullptr;
  }
  return graph;
}

void FakeCopies::launch(const Graph& graph, void* stream) {
  const std::lock_guard guard(mutex_);
  for (const auto& node : graph.nodes) give(*find_stream(stream), node);
}

bool FakeCopies::is_captured(void* stream) {
  const std::lock_guard guard(mutex_);
  const Stream* const on = find_stream(stream);
  return on != nullptr && on->graph != nullptr;
}

CudaResult FakeCopies::get_capture(void* stream, int* status, void** graph) {
  const std::lock_guard guard(mutex_);
  const Stream* const on = find_stream(stream);
  if (on == nullptr) return kCudaErrorInvalidValue;
  *status = on->graph ? 1 : 0;
  *graph = on->graph.get();
  return kCudaSuccess;
}

CudaResult FakeCopies::create_user_object(void** object, void* value, void (*destroy)(void*)) {
  *object = new UserObject{value, destroy};
  return kCudaSuccess;
}

// graph: null: gives the only reference back.
CudaResult FakeCopies::retain_user_object(void* graph, void* object) {
  std::unique_ptr<UserObject> taken(static_cast<UserObject*>(object));
  if (graph != nullptr) static_cast<Graph*>(graph)->objects.push_back(std::move(taken));
  return kCudaSuccess;
}

CudaResult FakeCopies::replayed_copy(const gpu::FewRanges& ranges, std::uint64_t gate,
                                     void* stream) {
  const std::lock_guard guard(mutex_);
  if (find(gate, sizeof(std::uint32_t)) == nullptr || ranges.grain == 0) {
    return kCudaErrorInvalidValue;
  }
  return start(stream, [this, ranges, gate] {
    if (word<std::uint32_t>(gate).load() != 0) return;
    copy_ranges(ranges);
  });
}

CudaResult FakeCopies::replayed_note(const gpu::ReplayedNote& note, void* stream) {
  const std::lock_guard guard(mutex_);
  const bool reached = find(note.gate, 4) != nullptr && find(note.count, 4) != nullptr &&
                       find(note.placed, 4) != nullptr &&
                       (note.mirror == 0 || find(note.mirror, sizeof(gpu::Note)) != nullptr);
  if (!reached || !is_registered(note.slot)) return kCudaErrorInvalidValue;
  return start(stream, [this, note] {
    if (word<std::uint32_t>(note.gate).load() != 0) return;
    const std::uint32_t before = word<std::uint32_t>(note.count).fetch_add(1);
    const std::uint32_t tag = note.writer | ((before + 1) % device::kCounts);
    const gpu::Note put = gpu::make_note(gpu::counted_value(note.value, before), tag);
    put_note(note.replaced, note.mirror, note.slot, put);
    word<std::uint32_t>(note.placed).store(before + 1);
  });
}

bool FakeCopies::has_come(const gpu::ReplayedWait& wait) {
  auto& awaited = word<std::uint32_t>(wait.word);
  if (wait.awaited == gpu::Awaited::number) {
    return static_cast<std::int32_t>(awaited.load() - wait.number) >= 0;
  }
  auto& slot = word<gpu::Note>(wait.note);
  const gpu::Note note = slot.load();
  if (gpu::value_of(note) == 0) return awaited.exchange(0) != 0;
  if ((gpu::tag_of(note) & gpu::kCounted) == 0) return slot.exchange(0) != 0;
  auto& taken = word<std::uint32_t>(wait.taken);
  const std::uint32_t ahead = gpu::notes_ahead(gpu::tag_of(note), taken.load());
  if (ahead == 0) return false;
  taken = gpu::tag_before(gpu::tag_of(note), ahead - 1);
  if (ahead == 1) slot.store(0);
  return true;
}

bool FakeCopies::has_ended(const gpu::ReplayedWait& wait, bool late) {
  const bool closed = word<std::uint32_t>(wait.closed).load() != 0;
  if (has_come(wait)) return true;
  if (!closed && !late) return false;
  auto& fault = word<std::uint64_t>(wait.fault);
  fault = gpu::next_fault(fault, closed ? gpu::kCancelled : gpu::kTimedOut);
  word<std::uint32_t>(wait.faults).fetch_add(1);
  return true;
}

CudaResult FakeCopies::replayed_wait(const gpu::ReplayedWait& wait, void* stream) {
  const std::lock_guard guard(mutex_);
  const auto host = [this](std::uint64_t at) {
    return is_pinned(reinterpret_cast<const void*>(at), 4) || is_registered(at);
  };
  const bool reached =
      host(wait.word) && host(wait.closed) && host(wait.fault) && host(wait.faults);
  const bool slot = wait.awaited == gpu::Awaited::slot;
  if (!reached || (slot && find(wait.taken, 4) == nullptr)) return kCudaErrorInvalidValue;
  return start_wait(stream, wait.nanoseconds,
                    [this, wait](bool late) { return has_ended(wait, late); });
}

}  // namespace zerohop::testing
