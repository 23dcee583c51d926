#include "engine/collective/block_writes.hpp"

#include <algorithm>

namespace zerohop::engine::collective {

const BlockWrites::Write& BlockWrites::next() {
  std::ranges::rotate(writes_, writes_.begin() + 1);
  return writes_.back();
}

bool BlockWrites::post_part(const Deadline& last) {
  auto& [line, move, there, written] = writes_.back();
  if (line->near() && move->bytes != nullptr && there.on_host()) {
    const std::uint64_t nbytes = std::min(kPart, move->nbytes - written);
    const auto from = reinterpret_cast<std::uint64_t>(move->bytes) + written;
    line->write(move->memory->range(from, nbytes),
                there.range(there.layout.address + written, nbytes), last);
    written += nbytes;
  } else {
    line->write(*move->memory, there, last);
    written = move->nbytes;
  }
  return written == move->nbytes;
}

}  // namespace zerohop::engine::collective
