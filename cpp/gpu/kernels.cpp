#include "gpu/kernels.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "base/locks.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/kernel_image.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }

// One block per multiprocessor of an H200 (66 reach 97 % of the speed, 264 no more); each leaves
// three quarters of its multiprocessor to the program.
constexpr unsigned kMostBlocks = 132;
constexpr unsigned kThreads = kMostThreads;

// How a range is divided: bytes that a warp copies at a time, and warps per block. In small ranges
// each lane makes one access; the smallest use a single block, which needs no counter, others small
// blocks. In large ranges each lane keeps several accesses in flight.
struct Share {
  std::uint64_t grain;
  unsigned warps;
};
Share share_of(std::uint64_t nbytes) {
  if (nbytes > 128_KiB) return {2_KiB, kThreads / 32};
  return {512, nbytes <= 8_KiB ? kThreads / 32 : 8};
}

}  // namespace

std::shared_ptr<const Kernels> Kernels::load(std::shared_ptr<const Device> device) {
  using Key = std::pair<const driver::Cuda*, int>;  // and the GPU's ordinal
  static Mutex<Rank::gpu_kernels> mutex;
  static auto& loaded = *new std::map<Key, std::weak_ptr<const Kernels>>;  // used until exit
  const std::lock_guard lock(mutex);
  auto& known = loaded[{&device->cuda(), device->ordinal()}];
  auto kernels = known.lock();
  if (!kernels || kernels->generation_ != fork_generation()) known = kernels = make(device);
  return kernels;
}

std::shared_ptr<const Kernels> Kernels::make(const std::shared_ptr<const Device>& device) {
  const auto image = kernel_image();
  if (image.empty()) {
    throw RouteUnavailable(
        "this build of zerohop has no GPU kernels, as there was no nvcc: install the CUDA toolkit "
        "(pip install nvidia-cuda-nvcc) and build again");
  }
  const driver::Cuda& cuda = device->cuda();
  const DeviceGuard guard(*device);
  std::shared_ptr<Kernels> kernels(new Kernels(device));
  driver::CudaModule module = nullptr;
  check_cuda(cuda, cuda.module_load(&module, image.data()),
             "cuModuleLoadData on " + device->facts().device_name());
  kernels->parts_->module = Module(module, {&cuda});
  kernels->parts_->tickets = std::make_unique<Tickets>(cuda);
  kernels->copy_pieces_ = kernels->find("zerohop_copy_pieces");
  kernels->copy_ranges_ = kernels->find("zerohop_copy_ranges");
  kernels->forget_notes_ = kernels->find("zerohop_forget_notes");
  kernels->group_chunks_ = kernels->find("zerohop_group_chunks");
  kernels->group_packets_ = kernels->find("zerohop_group_packets");
  kernels->reduce_ = kernels->find("zerohop_reduce");
  kernels->wait_word_ = kernels->find("zerohop_wait_word");
  kernels->replayed_copy_ = kernels->find("zerohop_replayed_copy");
  kernels->replayed_note_ = kernels->find("zerohop_replayed_note");
  kernels->replayed_wait_ = kernels->find("zerohop_replayed_wait");
  return kernels;
}

Kernels::~Kernels() {
  if (generation_ == fork_generation()) {
    give_back_apart(device_->ordinal(), destruction(device_, std::move(parts_)));
  } else {
    (void)parts_.release();  // CUDA does not survive fork(): leak instead of freeing
  }
}

driver::CudaFunction Kernels::find(const char* name) const {
  driver::CudaFunction function = nullptr;
  const driver::Cuda& cuda = device_->cuda();
  check_cuda(cuda, cuda.module_get_function(&function, parts_->module.get(), name),
             "cuModuleGetFunction");
  return function;
}

void Kernels::launch(driver::CudaFunction function, const Grid& grid, driver::CudaStream stream,
                     void** arguments, const char* what) const {
  constexpr int kOverlapping = 90;  // compute capability
  driver::CudaLaunchAttribute overlaps{
      .kind = driver::kCudaLaunchOverlaps, .unused = 0, .value = {.flag = 1}};
  const bool can = grid.overlaps && device_->facts().compute >= kOverlapping;
  const driver::CudaLaunch launch{.blocks_x = grid.blocks,
                                  .blocks_y = 1,
                                  .blocks_z = 1,
                                  .threads_x = grid.threads,
                                  .threads_y = 1,
                                  .threads_z = 1,
                                  .shared_nbytes = 0,
                                  .stream = stream,
                                  .attributes = can ? &overlaps : nullptr,
                                  .attribute_count = can ? 1U : 0U};
  const driver::Cuda& cuda = device_->cuda();
  check_cuda(cuda, cuda.launch_kernel(&launch, function, arguments, nullptr), what);
}

void Kernels::copy_pieces(driver::CudaAddress pieces, std::uint32_t count, const Tail& tail,
                          driver::CudaStream stream) const {
  if (count == 0) return;
  constexpr unsigned kWarps = kThreads / 32;  // per block
  const unsigned blocks = std::min(kMostBlocks, (count + kWarps - 1) / kWarps);
  Tail last = tail;
  std::array<void*, 3> arguments{&pieces, &count, &last};
  launch(copy_pieces_, {blocks, kThreads, /*overlaps=*/true}, stream, arguments.data(),
         "cuLaunchKernelEx of the copies");
}

Kernels::Grid Kernels::grid_of(FewRanges& ranges) {
  const std::uint64_t most = *std::max_element(ranges.nbytes, ranges.nbytes + FewRanges::kMost);
  const Share share = share_of(most);
  ranges.grain = share.grain;
  const std::uint64_t warps = std::max((most + share.grain - 1) / share.grain, std::uint64_t{1});
  return {static_cast<unsigned>(
              std::min<std::uint64_t>((warps + share.warps - 1) / share.warps, kMostBlocks)),
          static_cast<unsigned>(32 * std::min<std::uint64_t>(warps, share.warps))};
}

void Kernels::copy_ranges(FewRanges ranges, const Tail& tail, driver::CudaStream stream) const {
  Grid grid = grid_of(ranges);
  grid.overlaps = true;
  Tail last = tail;
  std::array<void*, 2> arguments{&ranges, &last};
  launch(copy_ranges_, grid, stream, arguments.data(), "cuLaunchKernelEx of a copy");
}

void Kernels::forget_notes(driver::CudaAddress notes, const NoteAt* forgotten, std::uint32_t count,
                           driver::CudaStream stream) const {
  if (count == 0) return;
  constexpr unsigned kBlock = 128;
  std::array<void*, 3> arguments{&notes, &forgotten, &count};
  launch(forget_notes_, {(count + kBlock - 1) / kBlock, kBlock}, stream, arguments.data(),
         "cuLaunchKernelEx of forgotten notifications");
}

void Kernels::group(GroupCall call, bool by_packets, unsigned blocks,
                    driver::CudaStream stream) const {
  std::array<void*, 1> arguments{&call};
  launch(by_packets ? group_packets_ : group_chunks_, {blocks, kGroupThreads}, stream,
         arguments.data(), "cuLaunchKernelEx of a collective");
}

void Kernels::reduce(ReduceCall& call, driver::CudaStream stream) const {
  if (call.nbytes == 0) return;
  constexpr std::uint64_t kEach = 8_KiB;  // of a block of threads, two vectors of each thread
  std::uint64_t all = call.out;
  for (std::uint32_t i = 0; i < call.count; ++i) all |= call.in[i];
  call.by_vectors = all % 16 == 0 ? 1 : 0;
  const std::uint64_t wanted = (call.nbytes + kEach - 1) / kEach;
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>(wanted, 2 * kMostBlocks));
  std::array<void*, 1> arguments{&call};
  launch(reduce_, {blocks, kReduceThreads}, stream, arguments.data(),
         "cuLaunchKernelEx of a reduction");
}

void Kernels::wait_word(Wait wait, driver::CudaStream stream) const {
  std::array<void*, 1> arguments{&wait};
  launch(wait_word_, {1, 1}, stream, arguments.data(), "cuLaunchKernelEx of a stream's wait");
}

void Kernels::replayed_copy(FewRanges ranges, driver::CudaAddress gate,
                            driver::CudaStream stream) const {
  const Grid grid = grid_of(ranges);
  std::array<void*, 2> arguments{&ranges, &gate};
  launch(replayed_copy_, grid, stream, arguments.data(), "cuLaunchKernelEx of a captured copy");
}

void Kernels::replayed_note(ReplayedNote note, driver::CudaStream stream) const {
  std::array<void*, 1> arguments{&note};
  launch(replayed_note_, {1, 1}, stream, arguments.data(),
         "cuLaunchKernelEx of a captured notification");
}

void Kernels::replayed_wait(ReplayedWait wait, driver::CudaStream stream) const {
  std::array<void*, 1> arguments{&wait};
  launch(replayed_wait_, {1, 1}, stream, arguments.data(), "cuLaunchKernelEx of a captured wait");
}

}  // namespace zerohop::gpu
