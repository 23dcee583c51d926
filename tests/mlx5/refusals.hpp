// Commands that are refused on purpose, for tests: the n-th from now on in this process.
#pragma once

#include "call.hpp"

namespace zerohop::mlx5sim::refusals {

// Whether it destroys something. Those are never refused: kernels do so only for what is in use.
bool destroys(const Call& call);

// The n-th from now on; 0: none.
void plan(int nth, int error);
// Which it was: object << 16 | method, or the command of the write(2) interface. 0: none yet.
int refused() noexcept;

// Throws Refused if it is the turn of this one.
void check(const Call& call);

}  // namespace zerohop::mlx5sim::refusals
