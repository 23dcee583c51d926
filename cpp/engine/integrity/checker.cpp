#include "engine/integrity/checker.hpp"

#include <string>

#include "base/error.hpp"

namespace zerohop::engine {

SummedUp Checker::answer(const SumUp& asked) noexcept {
  SummedUp answer{.request = asked.request, .sums = {}, .refusal = {}};
  const auto refuse = [&](std::uint32_t status, const std::exception& error) {
    answer.sums.clear();
    answer.status = status;
    answer.refusal = std::string(error.what()).substr(0, kMaxNameBytes);
  };
  try {
    std::uint64_t left = kMostSummedAtOnce;
    for (const SumUp::Part& part : asked.parts) add_sums(part, left, answer.sums);
    if (answer.sums.size() > kMaxSums) throw ProtocolError("too many checksums were requested");
  } catch (const RegistrationError& error) {
    refuse(IBV_WC_REM_ACCESS_ERR, error);
  } catch (const std::exception& error) {
    refuse(IBV_WC_REM_OP_ERR, error);
  }
  return answer;
}

void Checker::add_sums(const SumUp::Part& part, std::uint64_t& left,
                       std::vector<std::uint32_t>& sums) {
  const RemoteMemory named = RemoteMemory::from_bytes(part.memory);
  const std::uint64_t all = named.layout.nbytes();
  if ((named.access & kRemoteRead) == 0) throw ProtocolError("that memory may not be read");
  if (part.first > all || part.nbytes > all - part.first || part.nbytes > left) {
    throw ProtocolError("checksums were requested of bytes " + std::to_string(part.first) +
                        " and " + std::to_string(part.nbytes) + " more, which are not there");
  }
  left -= part.nbytes;
  const OwnMemories::Held held = memories_->find(named);
  for (const std::uint32_t sum :
       sums_.of({named.layout, part.first, part.nbytes}, held.device.get())) {
    sums.push_back(sum);
  }
  // If the right has ended meanwhile, this throws, and the peer learns nothing.
  static_cast<void>(memories_->find(named));
}

}  // namespace zerohop::engine
