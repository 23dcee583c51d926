// Commands that are refused on purpose, for tests: the n-th from now on in this process; or, by the
// environment, all of one kind in every process: MLX5SIM_REFUSE=0x5.0x1=12, object and method in
// hexadecimal and an errno.
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
