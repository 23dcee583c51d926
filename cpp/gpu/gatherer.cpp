#include "gpu/gatherer.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::gpu {

Gatherer::Gatherer(std::shared_ptr<const Device> device, std::size_t nbytes)
    : device_(std::move(device)), nbytes_(nbytes), generation_(fork_generation()) {
  const DeviceGuard guard(*device_);
  const driver::Cuda& cuda = device_->cuda();
  auto kernels = Kernels::load(device_);
  parts_->pages = pin_pages(cuda, nbytes);
  parts_->stream = make_urgent_stream(cuda);  // streams of the program may wait for it
  parts_->lists = std::make_unique<ListCopier>(device_, std::move(kernels));
}

Gatherer::~Gatherer() {
  if (generation_ != fork_generation()) {
    (void)parts_.release();  // CUDA does not survive fork()
  } else if (at_work_) {
    keep_for_good(std::shared_ptr<Parts>(std::move(parts_)));
  } else {
    give_back_apart(device_->ordinal(), destruction(device_, std::move(parts_)));
  }
}

void Gatherer::gather(PieceSource& pieces, std::uint64_t nbytes, const Deadline& deadline) {
  const DeviceGuard guard(*device_);
  at_work_ = true;
  const std::string what = "gathering scattered memory of " + device_->facts().device_name();
  parts_->lists->copy(pieces, nbytes, Tail{}, parts_->stream.get(), deadline);
  if (!wait_stream(*device_, parts_->stream.get(), what, deadline)) {
    throw TransferTimeout(what + " was not done in time");
  }
  at_work_ = false;
}

}  // namespace zerohop::gpu
