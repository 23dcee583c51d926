// The contexts that this process has left. They are numbered in order, and all end some day, so a
// few ranges hold any number of them.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>

#include "engine/path/message.hpp"

namespace zerohop::engine {

class EndedContexts {
 public:
  bool has(Context context) const {
    const auto after = ranges_.upper_bound(context);
    return after != ranges_.begin() && std::prev(after)->second >= context;
  }

  void add(Context context) {
    if (has(context)) return;
    Context last = context;
    auto after = ranges_.upper_bound(context);
    if (after != ranges_.end() && after->first - 1 == context) {
      last = after->second;
      after = ranges_.erase(after);
    }
    if (after != ranges_.begin() && std::prev(after)->second + 1 == context) {
      std::prev(after)->second = last;
    } else {
      ranges_.emplace(context, last);
    }
  }

  std::size_t range_count() const noexcept { return ranges_.size(); }

 private:
  std::map<Context, Context> ranges_;  // first and last
};

}  // namespace zerohop::engine
