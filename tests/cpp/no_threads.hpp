// No thread is to be had: what would run on one of its own runs in the call that starts it.
#pragma once

namespace zerohop::testing {

// While one lives, for the thread that made it.
class NoThreads {
 public:
  NoThreads();
  ~NoThreads();
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
};

}  // namespace zerohop::testing
