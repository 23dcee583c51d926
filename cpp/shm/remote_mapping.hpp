// One exposure of another process, as its client accesses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shm/generation_table.hpp"
#include "shm/mapping.hpp"

namespace zerohop::shm {

struct RemoteMapping {
  GenerationEntry entry{};
  std::uint64_t key = 0;    // the exposure's key
  std::uint64_t begin = 0;  // in the owner's addresses
  std::uint64_t end = 0;
  bool writable = false;
  // Null: accessed as memory of another process, or through the exported chunk that came with it.
  std::unique_ptr<const Mapping> pages;
  std::string trouble;  // why it is not accessible; empty: it is

  bool covers(std::uint64_t from, std::uint64_t to) const noexcept {
    return begin <= from && from <= to && to <= end;
  }
  std::byte* at(std::uint64_t address) const noexcept { return pages->data() + (address - begin); }
};

}  // namespace zerohop::shm
