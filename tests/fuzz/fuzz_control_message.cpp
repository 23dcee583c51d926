// The plaintext of control messages.
#include "base/error.hpp"
#include "engine/control_message.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  const std::vector<std::byte> bytes = zerohop::fuzz::Input(data, nbytes).rest();
  try {
    const auto message = zerohop::engine::decode_control_message(bytes);
    zerohop::fuzz::require(zerohop::engine::encode(message) == bytes,
                           "a control message is encoded in one way only");
  } catch (const zerohop::ProtocolError&) {
  }
  return 0;
}
