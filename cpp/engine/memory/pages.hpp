// A list of pages: parts, of equal shape, of a local array and of a Peer's, along their first axes,
// like the blocks of a paged KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/runs.hpp"
#include "engine/memory/pair.hpp"

namespace zerohop::engine {

// Page local_pages[k] corresponds to page remote_pages[k]. A view: its creator keeps alive all that
// it refers to.
struct Pages {
  const Memory* local = nullptr;
  const RemoteMemory* remote = nullptr;
  std::span<const std::int64_t> local_pages;
  std::span<const std::int64_t> remote_pages;

  // Throws std::invalid_argument if the page shapes or page counts differ, and std::out_of_range
  // for an index. All functions below require it.
  void check(bool is_write) const;

  std::size_t count() const noexcept { return local_pages.size(); }
  std::uint64_t nbytes() const;  // of all pages
};

// The layout of one page of an array, whether there is such a page or not.
Layout page_layout(const Layout& array, std::int64_t index);

// Ranges that are contiguous in both arrays (`a` is local), in the order of the list. Ranges
// adjacent in both are merged.
class PageRuns {
 public:
  explicit PageRuns(const Pages& pages);  // pages must not change

  bool next(Run& run) {  // false: no more
    run = ahead_;
    while (take(ahead_)) {
      if (ahead_.a_address != run.a_address + run.nbytes ||
          ahead_.b_address != run.b_address + run.nbytes) {
        return true;
      }
      run.nbytes += ahead_.nbytes;
    }
    ahead_ = {};
    return run.nbytes > 0;
  }

 private:
  bool take(Run& run) {  // unmerged
    if (next_ == of_first_.size()) {
      if (page_ + 1 >= pages_.count()) return false;
      ++page_, next_ = 0;
    }
    // Unsigned, as strides may be negative: the sums wrap to the right value.
    const Run& first = of_first_[next_++];
    run = {first.a_address + static_cast<std::uint64_t>(pages_.local_pages[page_]) * a_stride_,
           first.b_address + static_cast<std::uint64_t>(pages_.remote_pages[page_]) * b_stride_,
           first.nbytes};
    return true;
  }

  const Pages pages_;
  const std::uint64_t a_stride_;
  const std::uint64_t b_stride_;
  std::vector<Run> of_first_;  // of pages 0, whether or not they are in the list
  std::size_t page_ = 0;       // in the list
  std::size_t next_ = 0;       // of its runs
  Run ahead_{};                // 0 bytes: no more
};

// The same list as pairs of arrays, for callers that move arrays; pages adjacent in both lists form
// one pair.
struct PagePairs {
  explicit PagePairs(const Pages& pages);
  PagePairs(const PagePairs&) = delete;
  PagePairs& operator=(const PagePairs&) = delete;

  std::vector<Memory> local;
  std::vector<RemoteMemory> remote;
  std::vector<Pair> pairs;  // of the two above
};

}  // namespace zerohop::engine
