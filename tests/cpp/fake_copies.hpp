// Memory, streams and events of a nonexistent GPU, for FakeCuda.
//
// The memory has addresses that fault when the CPU or the kernel accesses them: only copies reach
// it. Work submitted to a stream runs when an event recorded behind it is queried, and no earlier;
// until then the target of a copy to the host holds garbage. So code that does not wait fails.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/unique_fd.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/copy_piece.hpp"
#include "gpu/group_call.hpp"
#include "gpu/reduce_call.hpp"
#include "gpu/replay.hpp"
#include "gpu/tail.hpp"

namespace zerohop::testing {

class FakeCopies {
 public:
  FakeCopies() = default;
  ~FakeCopies();
  FakeCopies(const FakeCopies&) = delete;
  FakeCopies& operator=(const FakeCopies&) = delete;

  // Memory of the GPU, filled with `fill`; unmapped with this object at the latest.
  std::uint64_t allocate(std::size_t nbytes, std::byte fill = std::byte{0});
  // A descriptor of the memory that begins there, which others may map; -1: none does.
  int share(std::uint64_t begin);
  void release(std::uint64_t begin);
  // The contents, for tests. at(): in this process's memory, as kernels access them; null: none.
  std::byte* at(std::uint64_t address) {
    const std::lock_guard guard(mutex_);
    return find(address, 1);
  }
  std::vector<std::byte> read(std::uint64_t address, std::size_t nbytes);
  void write(std::uint64_t address, const std::vector<std::byte>& bytes);

  // For kernels, which run with the lock held.
  void overwrite(std::uint64_t address, const std::vector<std::byte>& bytes);
  // Work of the program on its default stream: runs when that stream is waited for.
  void launch(std::function<void()> kernel);

  // Host pages that accept only read-only registrations.
  void make_read_only(std::uint64_t begin, std::uint64_t nbytes);
  std::map<std::uint64_t, std::uint64_t> registered() const;  // begin, end

  // Live objects.
  int pinned() const { return count(pinned_); }
  int streams() const { return count(streams_); }
  int events() const { return count(events_); }
  int waiting() const;  // copies that were started and have not run

  // A stream of the program that only the test drives: run() executes what can run, and returns
  // whether that was everything.
  void* program_stream();
  bool run(void* stream);

  // Captures: what is put into the stream, and into streams that follow it by events, becomes part
  // of a graph. The test launches graphs. A destroyed one gives its user objects back.
  struct Graph;
  void begin_capture(void* stream);
  std::shared_ptr<Graph> end_capture(void* stream);
  void launch(const Graph& graph, void* stream);
  bool is_captured(void* stream);

  // The functions of the table.
  driver::CudaResult reduce(const gpu::ReduceCall& call, void* stream);  // sums of int32
  driver::CudaResult get_capture(void* stream, int* status, void** graph);
  driver::CudaResult create_user_object(void** object, void* value, void (*destroy)(void*));
  driver::CudaResult retain_user_object(void* graph, void* object);
  driver::CudaResult pin(void** pages, std::size_t nbytes);
  driver::CudaResult unpin(void* pages);
  driver::CudaResult create_stream(void** stream);
  driver::CudaResult destroy_stream(void* stream);
  driver::CudaResult create_event(void** event);
  driver::CudaResult destroy_event(void* event);
  driver::CudaResult to_host(void* to, std::uint64_t from, std::size_t nbytes, void* stream);
  driver::CudaResult to_device(std::uint64_t to, const void* from, std::size_t nbytes,
                               void* stream);
  driver::CudaResult set(std::uint64_t to, std::byte value, std::size_t nbytes, void* stream);
  // The kernels. `list`: gpu::CopyPiece in pinned memory, read when the work runs.
  driver::CudaResult pieces(std::uint64_t list, std::uint32_t count, const gpu::Tail& tail,
                            void* stream);
  driver::CudaResult ranges(const gpu::FewRanges& ranges, const gpu::Tail& tail, void* stream);
  driver::CudaResult wait(const gpu::Wait& wait, void* stream);
  // A collective's: it stays while collectives_wait, unless it is cancelled; then it says nothing.
  driver::CudaResult group(const gpu::GroupCall& call, void* stream);
  driver::CudaResult forget(std::uint64_t notes, const gpu::NoteAt* list, std::uint32_t count,
                            void* stream);
  driver::CudaResult replayed_copy(const gpu::FewRanges& ranges, std::uint64_t gate, void* stream);
  driver::CudaResult replayed_note(const gpu::ReplayedNote& note, void* stream);
  driver::CudaResult replayed_wait(const gpu::ReplayedWait& wait, void* stream);
  driver::CudaResult register_pages(void* begin, std::size_t nbytes, bool read_only = false);
  driver::CudaResult unregister_pages(void* begin);
  bool is_locked(const void* address) const;
  driver::CudaResult record(void* event, void* stream);
  driver::CudaResult query(void* event);
  driver::CudaResult copy(std::uint64_t to, std::uint64_t from, std::size_t nbytes, void* stream);
  driver::CudaResult write_value(void* stream, std::uint64_t to, std::uint32_t value);
  driver::CudaResult wait_event(void* stream, void* event);
  driver::CudaResult query_stream(void* stream);

  // Makes work never finish: copies; work in the program's default stream.
  std::atomic<bool> hangs = false;
  std::atomic<bool> program_hangs = false;
  std::atomic<bool> collectives_wait = false;  // for other ranks

 private:
  struct Block {
    std::size_t nbytes;
    UniqueFd file;  // of the contents
    std::byte* content;
  };
  struct Stream;
  struct Task {
    std::function<void()> run;
    Stream* after = nullptr;  // waits for that stream's earlier work
    std::uint64_t behind = 0;
    std::function<bool()> ready = {};  // empty: always
  };
  struct Stream {
    std::deque<Task> waiting;
    std::uint64_t begun = 0;  // how many were ever started
    bool asked = false;
    std::shared_ptr<Graph> graph = {};  // while it is captured
  };
  struct Event {
    Stream* stream = nullptr;
    std::uint64_t behind = 0;  // so many of its stream
    bool asked = false;
    std::weak_ptr<Graph> graph = {};  // of the capture in which it was recorded
    bool captured = false;
  };

  template <typename T>
  int count(const T& objects) const {
    const std::lock_guard guard(mutex_);
    return static_cast<int>(objects.size());
  }
  std::byte* find(std::uint64_t address, std::size_t nbytes);
  bool is_pinned(const void* address, std::size_t nbytes) const;
  bool is_registered(std::uint64_t address) const;
  // On the GPU, or in registered pages: then inside one registration, and writable.
  enum class Use { read, write };
  std::byte* place(std::uint64_t address, std::size_t nbytes, Use use);
  bool reaches(const gpu::Tail& tail);
  template <typename T>
  std::atomic<T>& word(std::uint64_t address) {  // of the GPU, or of the host
    std::byte* const on_gpu = find(address, sizeof(T));
    return *reinterpret_cast<std::atomic<T>*>(
        on_gpu != nullptr ? on_gpu : reinterpret_cast<std::byte*>(address));
  }
  void put_note(std::uint64_t replaced, std::uint64_t mirror, std::uint64_t slot, gpu::Note note);
  void put(const gpu::Tail& tail);
  bool has_ended(const gpu::Wait& wait, bool late);
  void copy_piece(const gpu::CopyPiece& piece);
  void copy_ranges(const gpu::FewRanges& ranges);
  Stream* find_stream(void* stream);
  driver::CudaResult start(void* stream, std::function<void()> work);
  // Into the stream, or into the graph: then a task is made for each launch.
  void give(Stream& stream, const std::function<Task()>& make);
  // A kernel that ends once has_ended(late). nanoseconds: from when the stream reaches it.
  driver::CudaResult start_wait(void* stream, std::uint64_t nanoseconds,
                                const std::function<bool(bool late)>& has_ended);
  bool has_come(const gpu::ReplayedWait& wait);
  bool has_ended(const gpu::ReplayedWait& wait, bool late);
  bool advance(Stream& stream, std::uint64_t until);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Block> blocks_;
  std::map<const std::byte*, std::vector<std::byte>> pinned_;
  struct Pages {
    std::uint64_t end;
    bool read_only;
  };
  std::map<std::uint64_t, Pages> registered_;         // of the host, by begin
  std::map<std::uint64_t, std::uint64_t> read_only_;  // begin, end
  std::map<void*, std::unique_ptr<Stream>> streams_;
  std::map<void*, std::unique_ptr<Event>> events_;
  Stream default_;
};

}  // namespace zerohop::testing
