// How many connections a listener keeps of those who have not yet said who they are.
#pragma once

#include <cstddef>

namespace zerohop {

// `wished`, but never more than a quarter of the descriptors that this process may have: a crowd
// before the door must not keep the program from opening files, nor honest peers from coming in.
std::size_t most_strangers(std::size_t wished) noexcept;

}  // namespace zerohop
