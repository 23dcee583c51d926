// The error types of zerohop. Python mirrors each of them one to one (zerohop.errors).
//
// A message says what failed, why, and what to do about it, in one sentence. The numeric code of
// the source (errno, ibv_wc_status, CUresult) is kept beside it; 0 where there is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace zerohop {

// What a failed transfer may have done to the destination.
enum class Effect { nothing, some, all };

const char* effect_name(Effect effect) noexcept;

class Error : public std::runtime_error {
 public:
  // effect_words: length in bytes of the part at the end of the message that describes the effect.
  explicit Error(const std::string& message, int code = 0, Effect effect = Effect::nothing,
                 std::size_t effect_words = 0)
      : std::runtime_error(message), code_(code), effect_(effect), effect_words_(effect_words) {}

  int code() const noexcept { return code_; }
  Effect effect() const noexcept { return effect_; }
  std::size_t effect_words() const noexcept { return effect_words_; }

 private:
  int code_;
  Effect effect_;
  std::size_t effect_words_;
};

// Each subclass says which source the code belongs to, or which guarantee ended the operation.
// The code is errno or ibv_wc_status.
class VerbsError : public Error {
  using Error::Error;
};
// The code is a CUresult.
class CudaError : public Error {
  using Error::Error;
};
// The peer died, hangs or left.
class PeerLost : public Error {
  using Error::Error;
};
// The wait ended, not the transfer.
class TransferTimeout : public Error {
  using Error::Error;
};
// Memory cannot be (or is no longer) registered.
class RegistrationError : public Error {
  using Error::Error;
};
// The demanded route does not exist here.
class RouteUnavailable : public Error {
  using Error::Error;
};
// The received bytes differ from those sent: their checksums differ. The damage lies in bytes
// [offset, offset + nbytes) of the array, counted in C order.
class IntegrityError : public Error {
 public:
  IntegrityError(const std::string& message, Effect effect, std::uint64_t offset,
                 std::uint64_t nbytes, std::size_t effect_words = 0)
      : Error(message, 0, effect, effect_words), offset_(offset), nbytes_(nbytes) {}
  std::uint64_t offset() const noexcept { return offset_; }
  std::uint64_t nbytes() const noexcept { return nbytes_; }

 private:
  std::uint64_t offset_;
  std::uint64_t nbytes_;
};
// Bytes that no correct peer sends.
class ProtocolError : public Error {
  using Error::Error;
};
// The address's secret does not match.
class AuthenticationError : public Error {
  using Error::Error;
};

// "cannot open /dev/x: Permission denied (errno 13)": what failed, followed by errno's own words.
std::string errno_message(const std::string& what, int error_number);

}  // namespace zerohop
