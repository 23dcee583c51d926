// Captured calls with one Peer: copies and notifications as parts of CUDA graphs, which kernels of
// this process carry out with each replay. Nothing of them is decided on the CPU after the capture,
// so everything stays reserved while the graph exists. When the Peer is lost or closes its memory,
// the calls that need it are left out: their kernels return at once.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/locks.hpp"
#include "engine/notify/notification.hpp"
#include "engine/path/gpu/gpu_copies.hpp"
#include "engine/path/gpu/kernel_reach.hpp"
#include "gpu/capture.hpp"
#include "gpu/replay_words.hpp"

namespace zerohop::engine {

// Any thread.
class GpuCaptures {
 public:
  static constexpr std::size_t kMostRanges = 32;  // of one call: a kernel for every four

  explicit GpuCaptures(std::string peer) : peer_(std::move(peer)) {}

  struct Call {
    std::shared_ptr<const gpu::Device> device;
    driver::CudaStream stream;               // being captured
    std::span<const gpu::CopyPiece> ranges;  // kMostRanges at most
    GpuCopies::Kept kept;
    std::optional<Notification> notify;  // the value of the first replay
    std::shared_ptr<shm::LocalSession> session;
  };
  // make_notes: lets kernels notify the Peer as that writer; 0: a new one. Throws RouteUnavailable,
  // CudaError, TransferTimeout, Error (too many).
  using MakeNotes = std::function<KernelNotes(std::uint32_t writer)>;
  std::shared_ptr<const gpu::CapturePoint> add(Call call, const MakeNotes& make_notes,
                                               const Deadline& deadline);

  // For the progress thread. Neither blocks.
  void sweep() noexcept;  // leaves out what needs memory that the Peer has closed
  void end() noexcept;    // the Peer is lost

 private:
  // One GPU of this process.
  struct Lane {
    std::shared_ptr<gpu::ReplayWords> words;
    std::uint32_t writer = 0;  // of notes, in `session`
    std::weak_ptr<shm::LocalSession> session = {};
    std::weak_ptr<const KernelNotes> notes = {};
  };
  // What a graph keeps.
  struct CapturedCall {
    CapturedCall(std::shared_ptr<gpu::ReplayWords> of, std::shared_ptr<const gpu::Kernels> run_by)
        : words(std::move(of)), gate(words->take_gate()), kernels(std::move(run_by)) {}
    ~CapturedCall() {
      if (!left_out) words->give_back_gate(gate);
    }
    CapturedCall(const CapturedCall&) = delete;
    CapturedCall& operator=(const CapturedCall&) = delete;

    const std::shared_ptr<gpu::ReplayWords> words;
    const std::uint32_t gate;
    const std::shared_ptr<const gpu::Kernels> kernels;
    bool left_out = false;  // guarded by mutex_; from then on close() alone uses the next two
    GpuCopies::Kept kept{};
    std::shared_ptr<const KernelNotes> notes{};
  };
  using Calls = std::vector<std::shared_ptr<CapturedCall>>;

  Lane& lane_of(const std::shared_ptr<const gpu::Device>& device, const Deadline& deadline);
  static std::shared_ptr<const KernelNotes> notes_of(
      Lane& lane, const std::shared_ptr<shm::LocalSession>& session, const MakeNotes& make_notes);
  template <typename IsOver>
  void leave_out(IsOver is_over, const char* cause) noexcept;
  static void close(const std::string& peer, const Calls& of_one_gpu) noexcept;

  const std::string peer_;
  Mutex<Rank::gpu_captures_setup> setup_;  // held while a call is captured; guards the next
  std::map<int, Lane> lanes_;              // by ordinal
  Mutex<Rank::gpu_captures> mutex_;        // held briefly; guards the next
  std::list<std::weak_ptr<CapturedCall>> all_;
};

}  // namespace zerohop::engine
