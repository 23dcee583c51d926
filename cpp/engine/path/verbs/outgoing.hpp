// A message on its way out, and what it needs.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/path/message.hpp"
#include "engine/rail.hpp"

namespace zerohop::engine {

struct Outgoing {
  Message message;
  std::vector<std::byte> payload;
  RailKeys rkeys{};               // of an offer
  std::span<std::byte> packed{};  // where the array goes first, if it does
  std::optional<Seal> seal{};     // of the array; to be put behind the payload

  bool offers() const noexcept {
    return message.kind == MessageKind::offer || message.kind == MessageKind::sealed_offer;
  }
  void put_seal() {
    if (!seal) return;
    const auto bytes = std::as_bytes(std::span(&*seal, 1));
    payload.insert(payload.end(), bytes.begin(), bytes.end());
    message.kind = offers() ? MessageKind::sealed_offer : MessageKind::sealed_eager;
    seal.reset();
  }
};

}  // namespace zerohop::engine
