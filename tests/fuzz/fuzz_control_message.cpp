// The plaintext of control messages.
#include "base/error.hpp"
#include "engine/channel/control_message.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  const std::vector<std::byte> bytes = zerohop::fuzz::Input(data, nbytes).rest();
  try {
    const auto encoded = zerohop::engine::encode(zerohop::engine::decode_control_message(bytes));
    const auto again = zerohop::engine::encode(zerohop::engine::decode_control_message(encoded));
    zerohop::fuzz::require(again == encoded, "a control message is encoded in one way only");
  } catch (const zerohop::ProtocolError&) {
  }
  return 0;
}
