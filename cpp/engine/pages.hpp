// A list of pages: parts of an array here and of one of a Peer, of equal shape, along their first
// axes, as the blocks of a paged KV cache are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/runs.hpp"
#include "engine/memory.hpp"
#include "engine/remote_memory.hpp"

namespace zerohop::engine {

// Page local_pages[k] of the one and page remote_pages[k] of the other belong together. A view: who
// makes it keeps all that it names.
struct Pages {
  const Memory* local = nullptr;
  const RemoteMemory* remote = nullptr;
  std::span<const std::int64_t> local_pages;
  std::span<const std::int64_t> remote_pages;

  // Throws std::invalid_argument for pages, or numbers of them, that differ, and std::out_of_range
  // for an index. All below relies on it.
  void check(bool is_write) const;

  std::size_t count() const noexcept { return local_pages.size(); }
  std::uint64_t nbytes() const;  // of all pages
};

// Where all elements of one page of an array lie, whether there is such a page or not.
Layout page_layout(const Layout& array, std::int64_t index);

// Calls add(Run) for ranges that are contiguous in both arrays (`a` is local), in the order of the
// list. Those that follow one another in both are one.
template <typename Add>
void for_each_run(const Pages& pages, Add&& add) {
  const Layout& local = pages.local->layout();
  const Layout& remote = pages.remote->layout;
  std::vector<Run> of_first;
  Runs runs(page_layout(local, 0), page_layout(remote, 0));
  for (Run run{}; runs.next(run);) of_first.push_back(run);
  const auto a_stride = static_cast<std::uint64_t>(local.strides[0]);
  const auto b_stride = static_cast<std::uint64_t>(remote.strides[0]);
  Run last{};
  for (std::size_t k = 0; k < pages.count(); ++k) {
    // Unsigned, as strides may be negative: sums wrap to what is meant.
    const std::uint64_t a_offset = static_cast<std::uint64_t>(pages.local_pages[k]) * a_stride;
    const std::uint64_t b_offset = static_cast<std::uint64_t>(pages.remote_pages[k]) * b_stride;
    for (const Run& first : of_first) {
      const Run run{first.a_address + a_offset, first.b_address + b_offset, first.nbytes};
      if (run.a_address == last.a_address + last.nbytes &&
          run.b_address == last.b_address + last.nbytes) {
        last.nbytes += run.nbytes;
        continue;
      }
      if (last.nbytes > 0) add(std::as_const(last));
      last = run;
    }
  }
  if (last.nbytes > 0) add(std::as_const(last));
}

// The same list as pairs of arrays, for who moves those; pages that follow one another in both
// lists are one pair.
struct PagePairs {
  explicit PagePairs(const Pages& pages);
  PagePairs(const PagePairs&) = delete;
  PagePairs& operator=(const PagePairs&) = delete;

  std::vector<Memory> local;
  std::vector<RemoteMemory> remote;
  std::vector<std::pair<const Memory*, const RemoteMemory*>> pairs;  // of the two above
};

}  // namespace zerohop::engine
