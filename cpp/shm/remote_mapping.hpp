// One exposure of another process, as its client reaches it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shm/generation_table.hpp"
#include "shm/mapping.hpp"

namespace zerohop::shm {

struct RemoteMapping {
  GenerationEntry entry{};
  std::uint64_t key = 0;    // under which its owner exposes it
  std::uint64_t begin = 0;  // addresses of the owner
  std::uint64_t end = 0;
  bool writable = false;
  // Null: reached as memory of another process, or as the exported chunk brings it that came with
  // it.
  std::unique_ptr<const Mapping> pages;
  std::string trouble;  // why it cannot be reached; empty: it can

  bool covers(std::uint64_t from, std::uint64_t to) const noexcept {
    return begin <= from && from <= to && to <= end;
  }
  std::byte* at(std::uint64_t address) const noexcept { return pages->data() + (address - begin); }
};

}  // namespace zerohop::shm
