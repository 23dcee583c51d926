// Atomics on memory that the CPU cannot access.
#pragma once

#include <cstdint>

#include "base/locks.hpp"
#include "softhca/memory_table.hpp"
#include "softhca/wire.hpp"

namespace zerohop::softhca {

// Reads the word, changes it and writes it back, with `mutex` held: atomic with respect to all
// operations that hold it (IBV_ATOMIC_HCA), but not to other writers of the word. `old` receives
// the previous value. Returns 0 or the error of the device's driver; on error the word may or may
// not have been changed.
int copied_atomic(Mutex<Rank::softhca_copied_atomics>& mutex, const Place& word, bool adds,
                  const wire::Operands& operands, std::uint64_t& old) noexcept;

}  // namespace zerohop::softhca
