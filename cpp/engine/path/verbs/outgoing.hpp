// A message to be sent, and what it needs.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "engine/path/message.hpp"
#include "engine/path/verbs/send_pool.hpp"
#include "engine/rail.hpp"

namespace zerohop::engine {

struct Outgoing {
  Message message;
  SendBuffer payload{};
  RailKeys rkeys{};               // of an offer
  std::span<std::byte> packed{};  // destination of a packed copy of the array, if needed
  std::optional<Seal> seal{};     // of the array; goes behind the payload, which then has a buffer

  bool offers() const noexcept {
    return message.kind == MessageKind::offer || message.kind == MessageKind::sealed_offer;
  }
  void put_seal() {
    if (!seal) return;
    const auto bytes = std::as_bytes(std::span(&*seal, 1));
    payload.append(bytes);
    message.kind = offers() ? MessageKind::sealed_offer : MessageKind::sealed_eager;
    seal.reset();
  }
};

}  // namespace zerohop::engine
