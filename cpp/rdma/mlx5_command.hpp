// A command to an mlx5 adapter's firmware, and its answer (DEVX). Fields lie where NVIDIA's
// "Adapters Programming Manual" and Linux's include/linux/mlx5/mlx5_ifc.h have them: places and
// widths in bits, everything big-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace zerohop::rdma::mlx5 {

struct Field {
  unsigned at;
  unsigned bits;  // at most 32 within one 32-bit word, or 64: two whole words
};

enum class Opcode : std::uint16_t {
  query_hca_cap = 0x100,
  create_cq = 0x400,
  create_qp = 0x500,
  rst_to_init = 0x502,
  init_to_rtr = 0x503,
  rtr_to_rts = 0x504,
  query_qp = 0x50b,
};
const char* opcode_name(Opcode opcode) noexcept;  // "CREATE_CQ"

class Command {
 public:
  explicit Command(Opcode opcode);

  // Throws std::invalid_argument if the value does not fit.
  Command& with(Field field, std::uint64_t value);
  // 16 bytes.
  Command& with_gid(unsigned at, std::span<const std::uint8_t, 16> gid);

  // As long as the firmware expects it, and room for its answer.
  std::span<const std::byte> bytes() const noexcept;
  std::span<std::byte> answer() noexcept;
  std::uint64_t answered(Field field) const noexcept;
  const char* name() const noexcept { return opcode_name(opcode_); }
  // "BAD_PARAM_ERR, syndrome 0x1a2b3c": what the firmware has answered.
  std::string outcome() const;

 private:
  static constexpr std::size_t kPlain = 0x80 / 8;
  static constexpr std::size_t kWithContext = 0x880 / 8;        // of a queue, which begins in it
  static constexpr std::size_t kCapabilities = 16 + (4 << 10);  // the longest answer

  const Opcode opcode_;
  alignas(8) std::array<std::byte, kWithContext> bytes_{};
  alignas(8) std::array<std::byte, kCapabilities> answer_{};
};

// QUERY_HCA_CAP: what is asked for, and a field of the answer.
namespace cap {
inline constexpr Field kWhich{0x30, 16};                   // op_mod
inline constexpr std::uint64_t kCurrentRoce = 4 << 1 | 1;  // those of RoCE as they are set now
inline constexpr Field kQpTimestamps{0x80 + 0x1e, 2};      // roce_cap.qp_ts_format
}  // namespace cap

// Of what was made, in an answer; of what is meant, in a command.
inline constexpr Field kNumber{0x48, 24};

// CREATE_CQ: its context (cqc) begins at 0x80.
namespace cq {
inline constexpr Field kRecordIsUmem{0x80 + 0x6, 1};
inline constexpr Field kRecordUmem{0x80 + 0x20, 32};
inline constexpr Field kLogSize{0x80 + 0x63, 5};
inline constexpr Field kUarPage{0x80 + 0x68, 24};
inline constexpr Field kEqn{0x80 + 0xa0, 32};
inline constexpr Field kRecordOffset{0x80 + 0x1c0, 64};
inline constexpr Field kUmemOffset{0x280, 64};
inline constexpr Field kUmem{0x2c0, 32};
inline constexpr Field kIsUmem{0x2e0, 1};
}  // namespace cq

// CREATE_QP, the changes of state, and the answer to QUERY_QP: their context (qpc) begins at 0xc0,
// and the primary path in it (ads) 0xc0 behind that.
namespace qp {
inline constexpr unsigned kContext = 0xc0;
inline constexpr unsigned kPath = kContext + 0xc0;
inline constexpr Field kState{kContext, 4};
inline constexpr Field kMigration{kContext + 0x13, 2};  // pm_state
inline constexpr Field kPd{kContext + 0x28, 24};
inline constexpr Field kMtu{kContext + 0x40, 3};
inline constexpr Field kLogMostMessage{kContext + 0x43, 5};
inline constexpr Field kLogSends{kContext + 0x51, 4};    // in blocks of 64 bytes
inline constexpr Field kTimestamps{kContext + 0x58, 2};  // ts_format
inline constexpr Field kUarPage{kContext + 0x68, 24};
inline constexpr Field kUserIndex{kContext + 0x88, 24};
inline constexpr Field kRemoteNumber{kContext + 0xa8, 24};
inline constexpr Field kLogAckRequests{kContext + 0x380, 4};  // log_ack_req_freq
inline constexpr Field kLogReadsOut{kContext + 0x388, 3};     // log_sra_max
inline constexpr Field kRetries{kContext + 0x38d, 3};
inline constexpr Field kRnrRetries{kContext + 0x390, 3};
inline constexpr Field kSendPsn{kContext + 0x3c8, 24};
inline constexpr Field kSendCq{kContext + 0x3e8, 24};
inline constexpr Field kLogReadsIn{kContext + 0x488, 3};  // log_rra_max
inline constexpr Field kRnrTimer{kContext + 0x4a3, 5};    // min_rnr_nak
inline constexpr Field kReceivePsn{kContext + 0x4a8, 24};
inline constexpr Field kReceiveCq{kContext + 0x4e8, 24};
inline constexpr Field kRecordOffset{kContext + 0x500, 64};
inline constexpr Field kReceiveType{kContext + 0x565, 3};
inline constexpr Field kRecordIsUmem{kContext + 0x683, 1};
inline constexpr Field kRecordUmem{kContext + 0x720, 32};
inline constexpr Field kUmemOffset{0x800, 64};
inline constexpr Field kUmem{0x840, 32};
inline constexpr Field kIsUmem{0x860, 1};

inline constexpr Field kPkeyIndex{kPath + 0x10, 16};
inline constexpr Field kHasGrh{kPath + 0x28, 1};
inline constexpr Field kRemoteLid{kPath + 0x30, 16};
inline constexpr Field kAckTimeout{kPath + 0x40, 5};
inline constexpr Field kSourceGidIndex{kPath + 0x48, 8};
inline constexpr Field kHopLimit{kPath + 0x58, 8};
inline constexpr Field kTrafficClass{kPath + 0x64, 8};
inline constexpr unsigned kRemoteGid = kPath + 0x80;
inline constexpr Field kDscp{kPath + 0x10a, 6};
inline constexpr Field kUdpSourcePort{kPath + 0x110, 16};
inline constexpr Field kEthernetPriority{kPath + 0x121, 3};
inline constexpr Field kServiceLevel{kPath + 0x124, 4};
inline constexpr Field kPort{kPath + 0x128, 8};  // vhca_port_num
inline constexpr Field kRemoteMacHigh{kPath + 0x130, 16};
inline constexpr Field kRemoteMacLow{kPath + 0x140, 32};

inline constexpr std::uint64_t kMigrated = 3;
inline constexpr std::uint64_t kDefaultTimestamps = 1;  // 0: free running
inline constexpr std::uint64_t kNoReceives = 3;         // of kReceiveType
}  // namespace qp

}  // namespace zerohop::rdma::mlx5
