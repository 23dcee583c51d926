// Makes thread creation fail: work for a separate thread then runs in the call that starts it.
#pragma once

namespace zerohop::testing {

// For the creating thread, for its lifetime.
class NoThreads {
 public:
  NoThreads();
  ~NoThreads();
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
};

}  // namespace zerohop::testing
