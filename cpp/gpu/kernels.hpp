// This library's kernels, loaded on one GPU once per process. Loading a module may block behind a
// running kernel that waits for something: so load all before launching any.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/fork.hpp"
#include "gpu/copy_piece.hpp"
#include "gpu/device.hpp"
#include "gpu/group_call.hpp"
#include "gpu/handles.hpp"
#include "gpu/reduce_call.hpp"
#include "gpu/replay.hpp"
#include "gpu/tail.hpp"
#include "gpu/tickets.hpp"

namespace zerohop::gpu {

// For each launch the caller has made the device current. All throw CudaError.
class Kernels {
 public:
  // Returns the kernels already loaded, or loads them. Throws RouteUnavailable when built without
  // kernels, CudaError (209: none for this GPU).
  static std::shared_ptr<const Kernels> load(std::shared_ptr<const Device> device);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Tickets for the launches that have a tail.
  Tickets& tickets() const noexcept { return *parts_->tickets; }

  // Enqueues the copies of `count` pieces. `pieces`: the list's address as the GPU sees it; it must
  // stay unchanged until they are done. tail.done 0: no tail; a later launch has it.
  void copy_pieces(driver::CudaAddress pieces, std::uint32_t count, const Tail& tail,
                   driver::CudaStream stream) const;
  // The same for a few ranges; this chooses their grain.
  void copy_ranges(FewRanges ranges, const Tail& tail, driver::CudaStream stream) const;
  // Clears the notes, from slot 0 on, that still equal `forgotten`, a list in pinned memory.
  void forget_notes(driver::CudaAddress notes, const NoteAt* forgotten, std::uint32_t count,
                    driver::CudaStream stream) const;
  // One rank's part of a collective. by_packets: how its blocks go, see group_call.hpp.
  void group(GroupCall call, bool by_packets, unsigned blocks, driver::CudaStream stream) const;
  // Reduces arrays of this GPU's memory; this sets by_vectors.
  void reduce(ReduceCall& call, driver::CudaStream stream) const;
  // Makes the stream wait.
  void wait_word(Wait wait, driver::CudaStream stream) const;
  // The work of captured calls: see replay.hpp. gate: as in ReplayedNote.
  void replayed_copy(FewRanges ranges, driver::CudaAddress gate, driver::CudaStream stream) const;
  void replayed_note(ReplayedNote note, driver::CudaStream stream) const;
  void replayed_wait(ReplayedWait wait, driver::CudaStream stream) const;

 private:
  explicit Kernels(std::shared_ptr<const Device> device)
      : device_(std::move(device)), generation_(fork_generation()) {}
  static std::shared_ptr<const Kernels> make(const std::shared_ptr<const Device>& device);
  driver::CudaFunction find(const char* name) const;
  struct Grid {
    unsigned blocks;
    unsigned threads;       // per block
    bool overlaps = false;  // with the end of the previous launch
  };
  static Grid grid_of(FewRanges& ranges);  // also sets their grain
  void launch(driver::CudaFunction function, const Grid& grid, driver::CudaStream stream,
              void** arguments, const char* what) const;

  // Driver objects, destroyed on another thread.
  struct Parts {
    std::unique_ptr<Tickets> tickets;
    Module module;
  };

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<Parts> parts_ = std::make_unique<Parts>();
  driver::CudaFunction copy_pieces_ = nullptr;
  driver::CudaFunction copy_ranges_ = nullptr;
  driver::CudaFunction forget_notes_ = nullptr;
  driver::CudaFunction group_chunks_ = nullptr;
  driver::CudaFunction group_packets_ = nullptr;
  driver::CudaFunction reduce_ = nullptr;
  driver::CudaFunction wait_word_ = nullptr;
  driver::CudaFunction replayed_copy_ = nullptr;
  driver::CudaFunction replayed_note_ = nullptr;
  driver::CudaFunction replayed_wait_ = nullptr;
};

}  // namespace zerohop::gpu
