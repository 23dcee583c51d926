// Reductions of arrays in one GPU's memory, one after the other in a stream of their own.
#pragma once

#include <memory>

#include "base/deadline.hpp"
#include "gpu/handles.hpp"
#include "gpu/kernels.hpp"

namespace zerohop::gpu {

// For one thread at a time.
class Reducer {
 public:
  // Throws RouteUnavailable (built without kernels), CudaError.
  explicit Reducer(std::shared_ptr<const Device> device);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Enqueues one. The first since a wait begins after the work submitted to the default stream so
  // far, which may still be making the arrays. Throws CudaError.
  void enqueue(ReduceCall& call);
  // Waits for all. Throws CudaError; TransferTimeout: other work delays them beyond `deadline`.
  void wait(const Deadline& deadline);

 private:
  // Driver objects, destroyed on another thread.
  struct Parts {
    std::shared_ptr<const Kernels> kernels;
    Stream stream;
    Event before;  // the work in the default stream
  };

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<Parts> parts_ = std::make_unique<Parts>();
  bool any_ = false;  // enqueued, and not waited for
};

}  // namespace zerohop::gpu
