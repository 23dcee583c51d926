#include <array>

#include "rdma/queue_pair.hpp"

namespace zerohop::rdma {
namespace {

struct StatusMeaning {
  const char* name;
  const char* help;
};

#define ZEROHOP_STATUS(status, help) {#status, help}
// Indexed by ibv_wc_status. Meanings: InfiniBand Architecture Specification, volume 1, section
// 11.6.2 (completion return status), and man ibv_poll_cq.
constexpr std::array<StatusMeaning, 24> kStatusMeanings{{
    ZEROHOP_STATUS(IBV_WC_SUCCESS, "the operation completed"),
    ZEROHOP_STATUS(IBV_WC_LOC_LEN_ERR,
                   "a message was longer than the receive buffer or than the port's max_msg_sz: "
                   "post larger buffers or split the message"),
    ZEROHOP_STATUS(IBV_WC_LOC_QP_OP_ERR,
                   "the adapter found the work request inconsistent: check its opcode, its flags "
                   "and its number of elements against the queue pair's capabilities"),
    ZEROHOP_STATUS(IBV_WC_LOC_EEC_OP_ERR,
                   "an end-to-end context was inconsistent, which RC queue pairs do not use: "
                   "report the adapter's driver"),
    ZEROHOP_STATUS(IBV_WC_LOC_PROT_ERR,
                   "a local element lies outside the memory region of its lkey, or that region is "
                   "gone or of another protection domain: keep the region alive until completion"),
    ZEROHOP_STATUS(IBV_WC_WR_FLUSH_ERR,
                   "the request was still queued when the queue pair went to the error state: the "
                   "first other status on this queue pair is the cause"),
    ZEROHOP_STATUS(IBV_WC_MW_BIND_ERR,
                   "a memory window could not be bound: check its access rights and region"),
    ZEROHOP_STATUS(IBV_WC_BAD_RESP_ERR,
                   "the peer answered with something that does not belong here: both ends must use "
                   "the same queue pair numbers and packet sequence numbers"),
    ZEROHOP_STATUS(IBV_WC_LOC_ACCESS_ERR,
                   "an incoming write with immediate hit local memory that does not allow it: "
                   "register it with IBV_ACCESS_LOCAL_WRITE and IBV_ACCESS_REMOTE_WRITE"),
    ZEROHOP_STATUS(
        IBV_WC_REM_INV_REQ_ERR,
        "the peer refused the request as malformed: its receive buffer is too small, the "
        "atomic is not 8-byte aligned, or its queue pair does not allow the operation"),
    ZEROHOP_STATUS(
        IBV_WC_REM_ACCESS_ERR,
        "the peer's memory does not allow this access: the rkey is wrong or revoked, the "
        "range leaves the region, or the region lacks the remote access bit"),
    ZEROHOP_STATUS(IBV_WC_REM_OP_ERR,
                   "the peer could not complete the operation: its memory may have been closed "
                   "meanwhile; see its own completions and async events"),
    ZEROHOP_STATUS(IBV_WC_RETRY_EXC_ERR,
                   "the peer did not acknowledge within timeout x retry_cnt: it died, its queue "
                   "pair left RTR/RTS, or the network lost the path"),
    ZEROHOP_STATUS(IBV_WC_RNR_RETRY_EXC_ERR,
                   "the peer had no receive posted until rnr_retry ran out: post receives earlier "
                   "or set rnr_retry to 7 (forever)"),
    ZEROHOP_STATUS(IBV_WC_LOC_RDD_VIOL_ERR,
                   "the reliable datagram domains differ, which RC queue pairs do not use: report "
                   "the adapter's driver"),
    ZEROHOP_STATUS(IBV_WC_REM_INV_RD_REQ_ERR,
                   "the peer refused a reliable datagram request, which RC queue pairs do not use: "
                   "report the adapter's driver"),
    ZEROHOP_STATUS(IBV_WC_REM_ABORT_ERR,
                   "the peer aborted the operation: look at its log, then connect again"),
    ZEROHOP_STATUS(IBV_WC_INV_EECN_ERR,
                   "an end-to-end context number was invalid, which RC queue pairs do not use: "
                   "report the adapter's driver"),
    ZEROHOP_STATUS(IBV_WC_INV_EEC_STATE_ERR,
                   "an end-to-end context was in a wrong state, which RC queue pairs do not use: "
                   "report the adapter's driver"),
    ZEROHOP_STATUS(IBV_WC_FATAL_ERR,
                   "the adapter failed: see dmesg, then close and reopen the device"),
    ZEROHOP_STATUS(IBV_WC_RESP_TIMEOUT_ERR,
                   "the peer's answer did not come in time: check that it is alive and reachable"),
    ZEROHOP_STATUS(IBV_WC_GENERAL_ERR,
                   "the adapter reports a vendor-specific error: see vendor_err and dmesg"),
    ZEROHOP_STATUS(IBV_WC_TM_ERR,
                   "tag matching failed, which zerohop does not use: report the adapter's driver"),
    ZEROHOP_STATUS(IBV_WC_TM_RNDV_INCOMPLETE,
                   "a tag-matching rendezvous was left incomplete, which zerohop does not use: "
                   "report the adapter's driver"),
}};
#undef ZEROHOP_STATUS
static_assert(kStatusMeanings.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1);

constexpr StatusMeaning kUnknownStatus{
    "IBV_WC_UNKNOWN",
    "the adapter reported a status that this version of verbs does not define: "
    "see vendor_err and update rdma-core"};

const StatusMeaning& meaning_of(ibv_wc_status status) noexcept {
  const auto index = static_cast<std::size_t>(status);
  return index < kStatusMeanings.size() ? kStatusMeanings[index] : kUnknownStatus;
}

}  // namespace

const char* completion_status_help(ibv_wc_status status) noexcept {
  return meaning_of(status).help;
}

const char* completion_status_name(ibv_wc_status status) noexcept {
  return meaning_of(status).name;
}

}  // namespace zerohop::rdma
