// The kernels of this library, loaded on one GPU, once for the process. To load a module may take
// as long as a kernel runs that waits for something: so all are loaded before the first one.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/fork.hpp"
#include "gpu/copy_piece.hpp"
#include "gpu/device.hpp"
#include "gpu/handles.hpp"
#include "gpu/tail.hpp"
#include "gpu/tickets.hpp"

namespace zerohop::gpu {

// Of each launch: the caller has made the device current. All throw CudaError.
class Kernels {
 public:
  // Those that the process has, or fresh ones. Throws RouteUnavailable when the library was built
  // without kernels, CudaError (209: none for this GPU).
  static std::shared_ptr<const Kernels> load(std::shared_ptr<const Device> device);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Of the launches that have a tail.
  Tickets& tickets() const noexcept { return *parts_->tickets; }

  // Puts the copies of `count` pieces into the stream. `pieces`: where the GPU finds the list,
  // which must stay as it is until they are done. tail.done 0: no tail, a later launch has it.
  void copy_pieces(driver::CudaAddress pieces, std::uint32_t count, const Tail& tail,
                   driver::CudaStream stream) const;
  // The same for a few ranges, whose grain this chooses.
  void copy_ranges(FewRanges ranges, const Tail& tail, driver::CudaStream stream) const;
  // Empties those of the notes, of slot 0 on, that are as `forgotten`, a list in pinned memory,
  // says.
  void forget_notes(driver::CudaAddress notes, const NoteAt* forgotten, std::uint32_t count,
                    driver::CudaStream stream) const;
  // Has the stream wait.
  void wait_word(Wait wait, driver::CudaStream stream) const;

 private:
  explicit Kernels(std::shared_ptr<const Device> device)
      : device_(std::move(device)), generation_(fork_generation()) {}
  static std::shared_ptr<const Kernels> make(const std::shared_ptr<const Device>& device);
  driver::CudaFunction find(const char* name) const;
  struct Grid {
    unsigned blocks;
    unsigned threads;       // of each
    bool overlaps = false;  // the end of the launch before it
  };
  void launch(driver::CudaFunction function, const Grid& grid, driver::CudaStream stream,
              void** arguments, const char* what) const;

  // What the driver knows: destroyed apart.
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
  driver::CudaFunction wait_word_ = nullptr;
};

}  // namespace zerohop::gpu
