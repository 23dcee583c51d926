// What every deleter of a verbs handle must know.
#pragma once

#include "base/fork.hpp"
#include "driver/verbs.hpp"

namespace zerohop::rdma {

struct Maker {
  const driver::Verbs* verbs;
  unsigned generation = fork_generation();

  // A forked child shares the device file with its parent: destroying a handle there would destroy
  // the parent's resource. So deleters do nothing in a process that did not make the handle.
  bool is_this_process() const noexcept { return generation == fork_generation(); }
};

}  // namespace zerohop::rdma
