#include "engine/memory/pages.hpp"

#include <stdexcept>
#include <string>

namespace zerohop::engine {
namespace {

std::string page_text(const Layout& page) {
  return shape_string(page.shape.span()) + " of " + page.dtype.name();
}

void check_axis(const Layout& array, const char* what) {
  if (array.ndim() > 0) return;
  throw std::invalid_argument(std::string("the ") + what +
                              " has no first axis to divide into pages: reshape() it");
}

bool all_inside(std::span<const std::int64_t> indices, std::int64_t size) noexcept {
  // The sign bit gets set by any negative or too large index: no branches.
  std::uint64_t signs = 0;
  const auto last = static_cast<std::uint64_t>(size - 1);
  for (const std::int64_t index : indices) {
    signs |= static_cast<std::uint64_t>(index) | (last - static_cast<std::uint64_t>(index));
  }
  return static_cast<std::int64_t>(signs) >= 0;
}

void check_indices(std::span<const std::int64_t> indices, std::int64_t size, const char* what) {
  if (all_inside(indices, size)) return;
  std::size_t k = 0;
  while (indices[k] >= 0 && indices[k] < size) ++k;
  const std::string pages =
      size == 0 ? std::string("no pages")
                : std::to_string(size) + " pages: give 0 to " + std::to_string(size - 1);
  throw std::out_of_range(std::string(what) + "_pages[" + std::to_string(k) + "] is " +
                          std::to_string(indices[k]) + ", and the " + what + " has " + pages);
}

}  // namespace

Layout page_layout(const Layout& array, std::int64_t index) {
  const auto offset =
      static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(array.strides[0]);
  return {array.address + offset, array.dtype, Dims(array.shape.span().subspan(1)),
          Dims(array.strides.span().subspan(1))};
}

std::uint64_t Pages::nbytes() const { return count() * page_layout(local->layout(), 0).nbytes(); }

void Pages::check(bool is_write) const {
  const char* const of_local = is_write ? "source" : "destination";
  const char* const of_remote = is_write ? "destination" : "source";
  check_axis(local->layout(), of_local);
  check_axis(remote->layout, of_remote);
  const Layout ours = page_layout(local->layout(), 0);
  const Layout theirs = page_layout(remote->layout, 0);
  if (ours.shape != theirs.shape || ours.dtype != theirs.dtype) {
    throw std::invalid_argument(
        "pages differ: those of the source are " + page_text(is_write ? ours : theirs) +
        " and those of the destination " + page_text(is_write ? theirs : ours) +
        "; slice or reshape() one of the two, transfers do not convert");
  }
  if (local_pages.size() != remote_pages.size()) {
    throw std::invalid_argument("there are " + std::to_string(local_pages.size()) + " " + of_local +
                                "_pages and " + std::to_string(remote_pages.size()) + " " +
                                of_remote + "_pages: give as many of both");
  }
  check_indices(local_pages, local->layout().shape[0], of_local);
  check_indices(remote_pages, remote->layout.shape[0], of_remote);
}

PageRuns::PageRuns(const Pages& pages)
    : pages_(pages),
      a_stride_(static_cast<std::uint64_t>(pages.local->layout().strides[0])),
      b_stride_(static_cast<std::uint64_t>(pages.remote->layout.strides[0])) {
  Runs runs(page_layout(pages.local->layout(), 0), page_layout(pages.remote->layout, 0));
  for (Run run{}; runs.next(run);) of_first_.push_back(run);
  if (pages.count() == 0 || !take(ahead_)) ahead_ = {};
}

PagePairs::PagePairs(const Pages& pages) {
  local.reserve(pages.count());
  remote.reserve(pages.count());
  for (std::size_t k = 0; k < pages.count();) {
    const std::int64_t ours = pages.local_pages[k];
    const std::int64_t theirs = pages.remote_pages[k];
    std::int64_t length = 0;
    do {
      ++length, ++k;
    } while (k < pages.count() && pages.local_pages[k] == ours + length &&
             pages.remote_pages[k] == theirs + length);
    const Index here = Slice{ours, ours + length};
    const Index there = Slice{theirs, theirs + length};
    local.push_back(pages.local->slice({&here, 1}));
    remote.push_back(pages.remote->slice({&there, 1}));
  }
  pairs.reserve(local.size());
  for (std::size_t i = 0; i < local.size(); ++i) pairs.emplace_back(&local[i], &remote[i]);
}

}  // namespace zerohop::engine
