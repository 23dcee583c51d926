#include "fake_copies.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

namespace zerohop::testing {

using driver::CudaResult;
using driver::kCudaErrorInvalidValue;
using driver::kCudaErrorNotReady;
using driver::kCudaSuccess;

namespace {

// Word by word if possible, as kernels may access the GPU's side meanwhile.
void store_words(std::byte* to, const void* from, std::size_t nbytes) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if ((reinterpret_cast<std::uintptr_t>(to) | nbytes) % kWord != 0) {
    std::memcpy(to, from, nbytes);
    return;
  }
  for (std::size_t at = 0; at < nbytes; at += kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(from) + at, kWord);
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to + at)).store(word);
  }
}

void load_words(void* to, std::byte* from, std::size_t nbytes) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if ((reinterpret_cast<std::uintptr_t>(from) | nbytes) % kWord != 0) {
    std::memcpy(to, from, nbytes);
    return;
  }
  for (std::size_t at = 0; at < nbytes; at += kWord) {
    const std::uint64_t word = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(from + at)).load();
    std::memcpy(static_cast<std::byte*>(to) + at, &word, kWord);
  }
}

}  // namespace

FakeCopies::~FakeCopies() {
  while (!blocks_.empty()) release(blocks_.begin()->first);
}

std::uint64_t FakeCopies::allocate(std::size_t nbytes, std::byte fill) {
  void* address = ::mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  UniqueFd file = UniqueFd(::memfd_create("fake GPU memory", MFD_CLOEXEC));
  void* content = MAP_FAILED;
  if (file && ::ftruncate(file.get(), static_cast<off_t>(nbytes)) == 0) {
    content = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  }
  if (content == MAP_FAILED) throw std::bad_alloc();
  if (fill != std::byte{0}) std::memset(content, static_cast<int>(fill), nbytes);
  const std::lock_guard guard(mutex_);
  const auto begin = reinterpret_cast<std::uint64_t>(address);
  blocks_[begin] = {nbytes, std::move(file), static_cast<std::byte*>(content)};
  return begin;
}

int FakeCopies::share(std::uint64_t begin) {
  const std::lock_guard guard(mutex_);
  const auto found = blocks_.find(begin);
  return found == blocks_.end() ? -1 : ::fcntl(found->second.file.get(), F_DUPFD_CLOEXEC, 0);
}

void FakeCopies::release(std::uint64_t begin) {
  const std::lock_guard guard(mutex_);
  const auto found = blocks_.find(begin);
  ::munmap(reinterpret_cast<void*>(begin), found->second.nbytes);
  ::munmap(found->second.content, found->second.nbytes);
  blocks_.erase(found);
}

std::byte* FakeCopies::find(std::uint64_t address, std::size_t nbytes) {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  auto& [begin, block] = *std::prev(after);
  const std::uint64_t offset = address - begin;
  return offset + nbytes <= block.nbytes ? block.content + offset : nullptr;
}

std::vector<std::byte> FakeCopies::read(std::uint64_t address, std::size_t nbytes) {
  const std::lock_guard guard(mutex_);
  const std::byte* at = find(address, nbytes);
  if (at == nullptr) throw std::out_of_range("no fake GPU memory there");
  return {at, at + nbytes};
}

void FakeCopies::write(std::uint64_t address, const std::vector<std::byte>& bytes) {
  const std::lock_guard guard(mutex_);
  overwrite(address, bytes);
}

void FakeCopies::overwrite(std::uint64_t address, const std::vector<std::byte>& bytes) {
  std::byte* at = find(address, bytes.size());
  if (at == nullptr) throw std::out_of_range("no fake GPU memory there");
  std::ranges::copy(bytes, at);
}

void FakeCopies::launch(std::function<void()> kernel) {
  const std::lock_guard guard(mutex_);
  default_.waiting.push_back({std::move(kernel), nullptr, 0, {}});
  ++default_.begun;
}

int FakeCopies::waiting() const {
  const std::lock_guard guard(mutex_);
  std::size_t all = 0;
  for (const auto& [handle, stream] : streams_) all += stream->waiting.size();
  return static_cast<int>(all);
}

CudaResult FakeCopies::pin(void** pages, std::size_t nbytes) {
  const std::lock_guard guard(mutex_);
  std::vector<std::byte> fresh(nbytes, std::byte{0xA5});
  *pages = fresh.data();
  pinned_.emplace(fresh.data(), std::move(fresh));
  return kCudaSuccess;
}

CudaResult FakeCopies::unpin(void* pages) {
  const std::lock_guard guard(mutex_);
  return pinned_.erase(static_cast<std::byte*>(pages)) == 1 ? kCudaSuccess : kCudaErrorInvalidValue;
}

bool FakeCopies::is_pinned(const void* address, std::size_t nbytes) const {
  const auto* at = static_cast<const std::byte*>(address);
  const auto after = pinned_.upper_bound(at);
  if (after == pinned_.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return at + nbytes <= begin + bytes.size();
}

CudaResult FakeCopies::create_stream(void** stream) {
  const std::lock_guard guard(mutex_);
  auto fresh = std::make_unique<Stream>();
  *stream = fresh.get();
  streams_.emplace(*stream, std::move(fresh));
  return kCudaSuccess;
}

CudaResult FakeCopies::destroy_stream(void* stream) {
  const std::lock_guard guard(mutex_);
  return streams_.erase(stream) == 1 ? kCudaSuccess : kCudaErrorInvalidValue;
}

CudaResult FakeCopies::create_event(void** event) {
  const std::lock_guard guard(mutex_);
  auto fresh = std::make_unique<Event>();
  *event = fresh.get();
  events_.emplace(*event, std::move(fresh));
  return kCudaSuccess;
}

CudaResult FakeCopies::destroy_event(void* event) {
  const std::lock_guard guard(mutex_);
  return events_.erase(event) == 1 ? kCudaSuccess : kCudaErrorInvalidValue;
}

FakeCopies::Stream* FakeCopies::find_stream(void* stream) {
  if (stream == driver::kCudaLegacyStream) return &default_;
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second.get();
}

CudaResult FakeCopies::start(void* stream, std::function<void()> work) {
  Stream* on = find_stream(stream);
  if (on == nullptr) return kCudaErrorInvalidValue;
  give(*on, [work = std::move(work)] { return Task{work, nullptr, 0, {}}; });
  return kCudaSuccess;
}

CudaResult FakeCopies::to_host(void* to, std::uint64_t from, std::size_t nbytes, void* stream) {
  const std::lock_guard guard(mutex_);
  std::byte* source = find(from, nbytes);
  if (source == nullptr || !is_pinned(to, nbytes)) return kCudaErrorInvalidValue;
  std::memset(to, 0xDB, nbytes);
  return start(stream, [=] { load_words(to, source, nbytes); });
}

CudaResult FakeCopies::to_device(std::uint64_t to, const void* from, std::size_t nbytes,
                                 void* stream) {
  const std::lock_guard guard(mutex_);
  std::byte* target = find(to, nbytes);
  if (target == nullptr || !is_pinned(from, nbytes)) return kCudaErrorInvalidValue;
  return start(stream, [=] { store_words(target, from, nbytes); });
}

CudaResult FakeCopies::set(std::uint64_t to, std::byte value, std::size_t nbytes, void* stream) {
  const std::lock_guard guard(mutex_);
  std::byte* target = find(to, nbytes);
  if (target == nullptr) return kCudaErrorInvalidValue;
  return start(stream, [=] { std::memset(target, static_cast<int>(value), nbytes); });
}

CudaResult FakeCopies::record(void* event, void* stream) {
  const std::lock_guard guard(mutex_);
  Stream* on = find_stream(stream);
  if (on == nullptr) return kCudaErrorInvalidValue;
  *events_.at(event) = {on, on->begun, false, on->graph, on->graph != nullptr};
  return kCudaSuccess;
}

CudaResult FakeCopies::query(void* event) {
  const std::lock_guard guard(mutex_);
  Event& asked = *events_.at(event);
  if (asked.stream == nullptr) return kCudaSuccess;  // never recorded
  if (asked.captured) return driver::kCudaErrorCaptureFirst;
  if (!std::exchange(asked.asked, true)) return kCudaErrorNotReady;
  return advance(*asked.stream, asked.behind) ? kCudaSuccess : kCudaErrorNotReady;
}

// False: something hangs.
bool FakeCopies::advance(Stream& stream, std::uint64_t until) {
  if (&stream == &default_ ? program_hangs : hangs) return false;
  while (stream.begun - stream.waiting.size() < until) {
    const Task& next = stream.waiting.front();
    if (next.after != nullptr && !advance(*next.after, next.behind)) return false;
    if (next.ready && !next.ready()) return false;
    const Task task = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    task.run();
  }
  return true;
}

CudaResult FakeCopies::copy(std::uint64_t to, std::uint64_t from, std::size_t nbytes,
                            void* stream) {
  const std::lock_guard guard(mutex_);
  const bool reached = place(from, nbytes, Use::read) && place(to, nbytes, Use::write);
  if (!reached) return kCudaErrorInvalidValue;
  return start(stream, [=, this] { copy_piece({from, to, nbytes}); });
}

CudaResult FakeCopies::write_value(void* stream, std::uint64_t to, std::uint32_t value) {
  const std::lock_guard guard(mutex_);
  auto* const word = reinterpret_cast<std::atomic<std::uint32_t>*>(to);
  if (!is_pinned(word, sizeof *word) && !is_registered(to)) return kCudaErrorInvalidValue;
  return start(stream, [=] { word->store(value, std::memory_order_release); });
}

CudaResult FakeCopies::wait_event(void* stream, void* event) {
  const std::lock_guard guard(mutex_);
  const Event& first = *events_.at(event);
  Stream* on = find_stream(stream);
  if (on == nullptr) return kCudaErrorInvalidValue;
  if (first.captured) {
    const auto graph = first.graph.lock();
    if (!graph || first.stream->graph != graph) return driver::kCudaErrorCaptureLast;  // it ended
    on->graph = graph;
    return kCudaSuccess;
  }
  give(*on, [first] { return Task{[] {}, first.stream, first.behind, {}}; });
  return kCudaSuccess;
}

CudaResult FakeCopies::query_stream(void* stream) {
  const std::lock_guard guard(mutex_);
  Stream* on = find_stream(stream);
  if (on == nullptr) return kCudaErrorInvalidValue;
  on->asked = !on->asked;
  if (on->asked && !on->waiting.empty()) return kCudaErrorNotReady;
  return advance(*on, on->begun) ? kCudaSuccess : kCudaErrorNotReady;
}

}  // namespace zerohop::testing
