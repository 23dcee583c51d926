// Detects fork without exec: threads and connections do not survive it. Objects therefore remember
// the generation that made them and refuse to work in another.
#pragma once

namespace zerohop {

// 0 in the first process; one higher in each child made by fork(2).
unsigned fork_generation() noexcept;

}  // namespace zerohop
