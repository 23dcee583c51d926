// Queue pairs between the two processes, driven by kernels of one of them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "engine/channel/control_message.hpp"
#include "engine/channel/questions.hpp"
#include "engine/path/verbs/device_path.hpp"

namespace zerohop::engine {

class DirectLinks {
 public:
  DirectLinks(std::shared_ptr<const PeerState> state, std::shared_ptr<Poller> poller,
              std::shared_ptr<PeerRails> rails, std::function<void(ControlMessage)> tell)
      : state_(std::move(state)),
        poller_(std::move(poller)),
        rails_(std::move(rails)),
        tell_(std::move(tell)) {}

  // Throws RouteUnavailable, PeerLost, VerbsError, CudaError, and TransferTimeout if the peer does
  // not answer.
  DirectReach open(EntryReach entries, const RemoteMemory& remote, const RingPlaces& places,
                   const Deadline& deadline);

  // --- for the progress thread ---
  // The other end of a queue pair that kernels of the peer drive. Throws Error.
  std::shared_ptr<const DirectTarget> make_target(RailIndex rail,
                                                  const rdma::QueuePairAddress& source) const;
  void on_opened(const DirectOpened& opened);

 private:
  struct Answer {
    std::atomic<bool> arrived{false};
    DirectOpened opened;
  };
  DirectOpened ask(const Questions<Answer>::Asked& asked, RailIndex rail,
                   const rdma::QueuePairAddress& source, const Deadline& deadline);

  const std::shared_ptr<const PeerState> state_;
  const std::shared_ptr<Poller> poller_;
  const std::shared_ptr<PeerRails> rails_;
  const std::function<void(ControlMessage)> tell_;
  Questions<Answer> questions_;
};

}  // namespace zerohop::engine
