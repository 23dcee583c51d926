// Where fields lie in commands to an adapter's firmware (DEVX): names as in NVIDIA's programmer's
// reference, places in bits from the front. Everything is big-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zerohop::mlx5sim::prm {

struct Field {
  unsigned at;
  unsigned bits;  // at most 64; no more than 32 unless it is whole words
};

// The whole of a field; 0 behind the end of the command.
std::uint64_t get(std::span<const std::byte> command, Field field) noexcept;
void set(std::span<std::byte> answer, Field field, std::uint64_t value) noexcept;

enum Command : std::uint64_t {
  kQueryHcaCap = 0x100,
  kCreateCq = 0x400,
  kCreateQp = 0x500,
  kRstToInit = 0x502,
  kInitToRtr = 0x503,
  kRtrToRts = 0x504,
  kToError = 0x507,
  kToReset = 0x50a,
  kQueryQp = 0x50b,
};

inline constexpr Field kOpcode{0, 16};
inline constexpr Field kStatus{0, 8};  // of an answer
inline constexpr std::uint64_t kBadOperation = 2;
inline constexpr std::uint64_t kBadParameter = 3;
inline constexpr Field kNumber{0x48, 24};  // of what was made, or is meant

// CREATE_CQ: the context begins at 0x80.
namespace cq {
inline constexpr Field kEntrySize{0x80 + 8, 3};  // 0: 64 bytes, 1: 128
inline constexpr Field kCollapsed{0x80 + 11, 1};
inline constexpr Field kRecordIsUmem{0x80 + 6, 1};
inline constexpr Field kRecordUmem{0x80 + 0x20, 32};
inline constexpr Field kLogSize{0x80 + 0x63, 5};
inline constexpr Field kEqn{0x80 + 0xa0, 32};
inline constexpr Field kRecordOffset{0x80 + 0x1c0, 64};
inline constexpr Field kUmemOffset{0x280, 64};
inline constexpr Field kUmem{0x2c0, 32};
inline constexpr Field kIsUmem{0x2e0, 1};
}  // namespace cq

// CREATE_QP, the changes of state and the answer to QUERY_QP: the context begins at 0xc0.
namespace qp {
inline constexpr unsigned kContext = 0xc0;
inline constexpr Field kState{kContext, 4};
inline constexpr Field kMigration{kContext + 0x13, 2};  // pm_state
inline constexpr std::uint64_t kMigrated = 3;
inline constexpr Field kPd{kContext + 0x28, 24};
inline constexpr Field kMtu{kContext + 0x40, 3};
inline constexpr Field kLogMostMessage{kContext + 0x43, 5};  // log_msg_max
inline constexpr Field kLogReceives{kContext + 0x49, 4};
inline constexpr Field kLogReceiveStride{kContext + 0x4d, 3};  // of 16 bytes
inline constexpr Field kNoSends{kContext + 0x50, 1};
inline constexpr Field kLogSends{kContext + 0x51, 4};
inline constexpr Field kPage{kContext + 0x68, 24};
inline constexpr Field kUserIndex{kContext + 0x88, 24};
inline constexpr Field kRemoteNumber{kContext + 0xa8, 24};
inline constexpr Field kAckTimeout{kContext + 0xc0 + 0x40, 5};
inline constexpr Field kSourceGidIndex{kContext + 0xc0 + 0x48, 8};
inline constexpr Field kHopLimit{kContext + 0xc0 + 0x58, 8};
inline constexpr Field kTrafficClass{kContext + 0xc0 + 0x64, 8};
inline constexpr Field kDscp{kContext + 0xc0 + 0x10a, 6};
inline constexpr Field kUdpSourcePort{kContext + 0xc0 + 0x110, 16};
inline constexpr Field kPort{kContext + 0xc0 + 0x128, 8};
inline constexpr Field kRemoteGidHigh{kContext + 0xc0 + 0x80, 64};
inline constexpr Field kRemoteGidLow{kContext + 0xc0 + 0xc0, 64};
inline constexpr Field kRemoteMacHigh{kContext + 0xc0 + 0x130, 16};
inline constexpr Field kRemoteMacLow{kContext + 0xc0 + 0x140, 32};
inline constexpr Field kLogReadsOut{kContext + 0x388, 3};
inline constexpr Field kRetryCount{kContext + 0x38d, 3};
inline constexpr Field kRnrRetry{kContext + 0x390, 3};
inline constexpr Field kSendPsn{kContext + 0x3c8, 24};
inline constexpr Field kSendCq{kContext + 0x3e8, 24};
inline constexpr Field kLogReadsIn{kContext + 0x488, 3};
inline constexpr Field kRemoteRead{kContext + 0x490, 1};
inline constexpr Field kRemoteWrite{kContext + 0x491, 1};
inline constexpr Field kRemoteAtomic{kContext + 0x492, 1};
inline constexpr Field kMinRnrNak{kContext + 0x4a3, 5};
inline constexpr Field kReceivePsn{kContext + 0x4a8, 24};
inline constexpr Field kReceiveCq{kContext + 0x4e8, 24};
inline constexpr Field kRecordOffset{kContext + 0x500, 64};
inline constexpr Field kReceiveType{kContext + 0x565, 3};
inline constexpr std::uint64_t kOwnReceives = 0;
inline constexpr std::uint64_t kSharedReceives = 1;
inline constexpr std::uint64_t kNoReceives = 3;
inline constexpr Field kSrq{kContext + 0x568, 24};
inline constexpr Field kRecordIsUmem{kContext + 0x683, 1};
inline constexpr Field kRecordUmem{kContext + 0x720, 32};
inline constexpr Field kUmemOffset{0x800, 64};
inline constexpr Field kUmem{0x840, 32};
inline constexpr Field kIsUmem{0x860, 1};
}  // namespace qp

}  // namespace zerohop::mlx5sim::prm
