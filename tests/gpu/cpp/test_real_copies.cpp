// The copying kernel on a real GPU: every byte of random sizes, offsets and alignments, and what
// many small copies reach.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/buffer.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/list_copier.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<unsigned char>;

void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::exit(1);
}

Deadline soon() { return Deadline::after(Deadline::Seconds{60}); }

struct Bench {
  std::shared_ptr<gpu::Device> device;
  std::shared_ptr<gpu::Device> other;  // whose memory is written
  gpu::DeviceGuard guard{*device};
  const driver::Cuda& cuda = device->cuda();
  gpu::Stream stream = gpu::make_stream(cuda);
  gpu::ListCopier copier{device, gpu::Kernels::load(device)};

  void wait() const {
    demand(gpu::wait_stream(*device, stream.get(), "the copies", soon()), "the copies end");
  }
  // The same without a nap, for measurements.
  void spin(const gpu::Event& event) const {
    driver::check_cuda(cuda, cuda.event_record(event.get(), stream.get()), "cuEventRecord");
    while (cuda.event_query(event.get()) == driver::kCudaErrorNotReady) {
    }
  }
  void upload(std::uint64_t to, const Bytes& bytes) const {
    driver::check_cuda(cuda, cuda.copy_to_device(to, bytes.data(), bytes.size(), stream.get()),
                       "upload");
    wait();
  }
  Bytes download(std::uint64_t from, std::size_t nbytes) const {
    Bytes bytes(nbytes);
    driver::check_cuda(cuda, cuda.copy_to_host(bytes.data(), from, nbytes, stream.get()),
                       "download");
    wait();
    return bytes;
  }
};

// Random pieces, one after the other at the target with gaps between, from anywhere.
void check_random_pieces(Bench& bench, unsigned seed) {
  constexpr std::uint64_t kSource = 8 << 20;
  constexpr std::uint64_t kTarget = 32 << 20;
  const auto source = gpu::Buffer::create(bench.device, kSource, soon());
  const auto target = gpu::Buffer::create(bench.other, kTarget, soon());
  std::mt19937_64 random(seed);
  Bytes from(kSource);
  std::ranges::generate(from, [&] { return static_cast<unsigned char>(random()); });
  Bytes expected(kTarget, 0xEE);
  bench.upload(source->address(), from);
  bench.upload(target->address(), expected);
  const auto below = [&](std::uint64_t most) { return random() % most; };
  std::vector<gpu::CopyPiece> pieces;
  for (std::uint64_t at = below(40); pieces.size() < 20000;) {
    const std::uint64_t size_class = below(10);
    const std::uint64_t nbytes = size_class < 6   ? below(300)
                                 : size_class < 9 ? below(5000)
                                                  : below(200000);
    if (at + nbytes > kTarget) break;
    const std::uint64_t begin = below(kSource - nbytes);
    pieces.push_back({source->address() + begin, target->address() + at, nbytes});
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(begin), nbytes,
                expected.begin() + static_cast<std::ptrdiff_t>(at));
    at += nbytes + below(3) * below(40);
  }
  gpu::RangeSource source_of(pieces);
  bench.copier.copy(source_of, kTarget, {}, bench.stream.get(), soon());
  demand(bench.download(target->address(), kTarget) == expected, "every byte is as it should be");
}

void measure(Bench& bench, std::uint64_t count, std::uint64_t nbytes) {
  const std::uint64_t total = std::uint64_t{512} << 20;
  const auto source = gpu::Buffer::create(bench.device, total, soon());
  const auto target = gpu::Buffer::create(bench.other, total, soon());
  std::mt19937_64 random(7);
  std::vector<std::uint64_t> places(total / nbytes);
  for (std::uint64_t i = 0; i < places.size(); ++i) places[i] = i * nbytes;
  std::vector<gpu::CopyPiece> pieces;
  std::ranges::shuffle(places, random);
  for (std::uint64_t i = 0; i < count; ++i)
    pieces.push_back({source->address() + places[i], 0, nbytes});
  std::ranges::shuffle(places, random);
  for (std::uint64_t i = 0; i < count; ++i) pieces[i].to = target->address() + places[i];
  const gpu::Event done = gpu::make_event(bench.cuda);
  double best = 1e9;
  double posting = 1e9;
  for (int round = 0; round < 10; ++round) {
    const auto begin = Clock::now();
    gpu::RangeSource source_of(pieces);
    bench.copier.copy(source_of, count * nbytes, {}, bench.stream.get(), soon());
    posting = std::min(posting, std::chrono::duration<double>(Clock::now() - begin).count());
    bench.spin(done);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::printf("%6llu x %6llu B: %6.1f us, posting %5.1f us, %5.1f GB/s\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(nbytes),
              best * 1e6, posting * 1e6, double(count * nbytes) / best / 1e9);
}

void run(int from, int to) {
  const auto& cuda = driver::libcuda().cuda;
  const auto device = gpu::Device::open(cuda, from);
  Bench bench{device, from == to ? device : gpu::Device::open(cuda, to)};
  for (unsigned seed = 1; seed <= 5; ++seed) check_random_pieces(bench, seed);
  std::printf("random pieces from cuda:%d to cuda:%d: every byte is right\n", from, to);
  measure(bench, 16384, 4096);
  measure(bench, 4096, 16384);
  measure(bench, 1024, 65536);
  measure(bench, 1, 8);
  measure(bench, 1, 1 << 20);
  measure(bench, 1, 256 << 20);
}

}  // namespace
}  // namespace zerohop

int main() {
  try {
    int count = 0;
    const auto cuda = zerohop::driver::libcuda().cuda;
    zerohop::driver::check_cuda(*cuda, cuda->init(0), "cuInit");
    zerohop::driver::check_cuda(*cuda, cuda->device_get_count(&count), "cuDeviceGetCount");
    zerohop::run(0, 0);
    if (count > 1) zerohop::run(0, 1);
  } catch (const zerohop::Error& error) {
    std::fprintf(stderr, "FAILED: %s\n", error.what());
    return 1;
  }
}
