#include "gpu/capture.hpp"

#include <functional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

struct KeptByGraph {
  int gpu;  // its ordinal
  unsigned generation;
  std::function<void()> let_go;
};

// Called by a thread of the driver, which must neither block nor call CUDA.
void let_go_of_graph(void* value) {
  std::unique_ptr<KeptByGraph> kept(static_cast<KeptByGraph*>(value));
  if (kept->generation != fork_generation()) return (void)kept.release();  // it is the parent's
  if (!try_run_apart(kept->gpu, kept->let_go)) keep_for_good(std::move(kept));
}

}  // namespace

bool is_captured(const driver::Cuda& cuda, driver::CudaStream stream) noexcept {
  int capturing = 0;
  return cuda.stream_is_capturing(stream, &capturing) == driver::kCudaSuccess && capturing != 0;
}

void keep_with_graph(const std::shared_ptr<const Device>& device, driver::CudaStream stream,
                     std::shared_ptr<const void> what) {
  const driver::Cuda& cuda = device->cuda();
  int status = 0;
  driver::CudaGraph graph = nullptr;
  check_cuda(cuda, cuda.stream_get_capture(stream, &status, nullptr, &graph, nullptr, nullptr),
             "cuStreamGetCaptureInfo");
  auto kept = std::make_unique<KeptByGraph>(device->ordinal(), fork_generation(),
                                            [what = std::move(what)]() mutable { what.reset(); });
  driver::CudaUserObject object = nullptr;
  check_cuda(cuda,
             cuda.user_object_create(&object, kept.get(), &let_go_of_graph, 1,
                                     driver::kCudaUserObjectUnsynchronized),
             "cuUserObjectCreate");
  (void)kept.release();  // let_go_of_graph() destroys it
  const driver::CudaResult result =
      cuda.graph_retain_user_object(graph, object, 1, driver::kCudaGraphTakesReference);
  if (result != driver::kCudaSuccess) (void)cuda.user_object_release(object, 1);
  check_cuda(cuda, result, "cuGraphRetainUserObject");
}

CapturePoint::CapturePoint(std::shared_ptr<const Device> device, driver::CudaStream stream)
    : device_(std::move(device)), generation_(fork_generation()) {
  const driver::Cuda& cuda = device_->cuda();
  *event_ = make_event(cuda);
  check_cuda(cuda, cuda.event_record(event_->get(), stream), "cuEventRecord in a capture");
}

CapturePoint::~CapturePoint() {
  if (generation_ != fork_generation()) {
    new auto(std::move(event_));  // CUDA does not survive fork()
  } else {
    give_back(device_->ordinal(), destruction(device_, std::move(event_)));
  }
}

void CapturePoint::precede(driver::CudaStream stream) const {
  const driver::Cuda& cuda = device_->cuda();
  const DeviceGuard guard(*device_);
  const driver::CudaResult result = cuda.stream_wait_event(stream, event_->get(), 0);
  if (result == driver::kCudaSuccess) return;
  throw RouteUnavailable(
      "this Transfer is part of a CUDA graph whose capture has ended, or is not that of stream= "
      "(CUDA error " +
      std::to_string(result) + "): order streams behind the launch of the graph");
}

}  // namespace zerohop::gpu
