// The state machine of a soft0 queue pair.
#include <doctest/doctest.h>

#include <set>
#include <utility>

#include "soft_side.hpp"

using namespace zerohop::testing;

namespace {

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kSend = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

// Attributes with which every existing transition succeeds.
ibv_qp_attr attributes_for(const Side& peer, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  attr.port_num = 1;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer.address().number;
  attr.rq_psn = peer.address().psn;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.address().gid;
  return attr;
}

int mask_for(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_INIT: return kInit;
    case IBV_QPS_RTR: return kReceive;
    case IBV_QPS_RTS: return kSend;
    default: return IBV_QP_STATE;
  }
}

int move_to(Side& side, const Side& peer, ibv_qp_state state, int mask) {
  ibv_qp_attr attr = attributes_for(peer, state);
  attr.sq_psn = side.address().psn;
  return soft().modify_qp(side.qp, &attr, mask);
}

void bring_to(Side& side, const Side& peer, ibv_qp_state state) {
  REQUIRE(move_to(side, peer, IBV_QPS_RESET, IBV_QP_STATE) == 0);
  for (const ibv_qp_state step : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (state == IBV_QPS_RESET || state == IBV_QPS_ERR || side.state() == state) break;
    REQUIRE(move_to(side, peer, step, mask_for(step)) == 0);
  }
  if (state == IBV_QPS_ERR) REQUIRE(move_to(side, peer, IBV_QPS_ERR, IBV_QP_STATE) == 0);
}

}  // namespace

TEST_CASE("only the transitions of the specification exist") {
  Side side;
  Side peer;
  const ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                 IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};
  const std::set<std::pair<int, int>> legal = {{IBV_QPS_RESET, IBV_QPS_INIT},
                                               {IBV_QPS_INIT, IBV_QPS_INIT},
                                               {IBV_QPS_INIT, IBV_QPS_RTR},
                                               {IBV_QPS_RTR, IBV_QPS_RTS}};
  for (const ibv_qp_state from : states) {
    if (from == IBV_QPS_SQD) continue;  // cannot be reached
    for (const ibv_qp_state to : states) {
      CAPTURE(from);
      CAPTURE(to);
      bring_to(side, peer, from);
      const bool allowed = to == IBV_QPS_RESET || to == IBV_QPS_ERR || legal.contains({from, to});
      CHECK(move_to(side, peer, to, mask_for(to)) == (allowed ? 0 : EINVAL));
      CHECK(side.state() == (allowed ? to : from));
    }
  }
}

TEST_CASE("each required attribute is required, and no foreign one is taken") {
  Side side;
  Side peer;
  const std::pair<ibv_qp_state, ibv_qp_state> steps[] = {
      {IBV_QPS_RESET, IBV_QPS_INIT}, {IBV_QPS_INIT, IBV_QPS_RTR}, {IBV_QPS_RTR, IBV_QPS_RTS}};
  for (const auto& [from, to] : steps) {
    bring_to(side, peer, from);
    const int mask = mask_for(to);
    for (int bit = 1; bit < (1 << 21); bit <<= 1) {
      CAPTURE(to);
      CAPTURE(bit);
      if (bit == IBV_QP_STATE || (mask & bit) == 0) continue;
      CHECK(move_to(side, peer, to, mask & ~bit) == EINVAL);
      CHECK(side.state() == from);
    }
    CHECK(move_to(side, peer, to, mask | IBV_QP_QKEY) == EINVAL);
    CHECK(move_to(side, peer, to, mask | IBV_QP_ALT_PATH) == EINVAL);
  }
}

TEST_CASE("values that the device cannot serve are refused") {
  Side side;
  Side peer;
  const auto refused = [&](ibv_qp_state state, auto change) {
    ibv_qp_attr attr = attributes_for(peer, state);
    change(attr);
    return soft().modify_qp(side.qp, &attr, mask_for(state)) == EINVAL;
  };
  CHECK(refused(IBV_QPS_INIT, [](ibv_qp_attr& attr) { attr.port_num = 2; }));
  CHECK(refused(IBV_QPS_INIT, [](ibv_qp_attr& attr) { attr.pkey_index = 1; }));
  bring_to(side, peer, IBV_QPS_INIT);
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.ah_attr.grh.dgid.raw[0] = 0xfe; }));
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.ah_attr.is_global = 0; }));
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.ah_attr.grh.sgid_index = 1; }));
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.max_dest_rd_atomic = 17; }));
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.min_rnr_timer = 32; }));
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.path_mtu = static_cast<ibv_mtu>(6); }));
  bring_to(side, peer, IBV_QPS_RTR);
  CHECK(refused(IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.max_rd_atomic = 17; }));
  CHECK(refused(IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.retry_cnt = 8; }));
  CHECK(refused(IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.rnr_retry = 8; }));
  CHECK(refused(IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.timeout = 32; }));
  CHECK(side.state() == IBV_QPS_RTR);
}

TEST_CASE("posting needs the right state") {
  Side side;
  Side peer;
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
    bring_to(side, peer, state);
    CHECK(side.post_message(1, {}) == EINVAL);
    CHECK(side.try_receive(1, {}) == (state == IBV_QPS_RESET ? EINVAL : 0));
  }
}
