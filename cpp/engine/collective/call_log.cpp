#include "engine/collective/call_log.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/crc32c.hpp"

namespace zerohop::engine::collective {
namespace {

std::uint32_t checksum_of(CallRecord record) {
  record.checksum = 0;
  return crc32c(std::as_bytes(std::span(&record, 1)));
}

}  // namespace

CallLog::CallLog(std::span<std::byte> memory, std::shared_ptr<void> owner)
    : memory_(memory), owner_(std::move(owner)) {
  if (memory.size() != kRecords * sizeof(CallRecord)) {
    throw std::invalid_argument("a log of calls takes " +
                                std::to_string(kRecords * sizeof(CallRecord)) + " bytes, not " +
                                std::to_string(memory.size()));
  }
}

CallRecord CallLog::add(const Call& call, double factor) {
  const std::uint64_t number = call.kind == Kind::barrier ? ++barriers_ : ++collectives_;
  digest_ = crc32c(std::as_bytes(std::span(&call, 1)), digest_);
  if (call.op == Op::premul_sum) digest_ = crc32c(std::as_bytes(std::span(&factor, 1)), digest_);
  CallRecord record{.position = ++position_, .number = number, .digest = digest_, .call = call};
  record.checksum = checksum_of(record);
  // A concurrent reader finds a checksum that does not match.
  std::memcpy(&memory_[position_ % kRecords * sizeof(record)], &record, sizeof(record));
  return record;
}

std::vector<CallRecord> CallLog::read(std::span<const std::byte> memory) {
  std::vector<CallRecord> found;
  for (; memory.size() >= sizeof(CallRecord); memory = memory.subspan(sizeof(CallRecord))) {
    CallRecord record;
    std::memcpy(&record, memory.data(), sizeof(record));
    const bool known = static_cast<std::uint8_t>(record.call.kind) < kKinds &&
                       static_cast<std::size_t>(record.call.op) < kOpNames.size();
    if (record.position > 0 && known && checksum_of(record) == record.checksum) {
      found.push_back(record);
    }
  }
  return found;
}

}  // namespace zerohop::engine::collective
