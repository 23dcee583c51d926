"""The other end of a queue pair, made with rdma-core's own pyverbs; with_pyverbs.py tells it what to do.

Run by the system's Python, for which Debian builds pyverbs. Orders come as JSON lines, answers go so.
"""

import json
import socket
import sys
import time
from typing import Any

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT, PSN = 1, 0x123456
NBYTES = 4096
ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
OPCODES = {
    "write": e.IBV_WR_RDMA_WRITE,
    "write_with_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
    "send": e.IBV_WR_SEND,
}


class Peer:
    def __init__(self, device: str, gid_index: int) -> None:
        self.gid_index = gid_index
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.mr = MR(self.pd, NBYTES, ACCESS)
        self.mr.write("\0" * NBYTES, NBYTES)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
        options = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap)
        self.qp = QP(self.pd, options)

    def facts(self) -> dict[str, Any]:
        gid = self.context.query_gid(PORT, self.gid_index).gid
        return {"qpn": self.qp.qp_num, "psn": PSN, "gid": gid, **self.memory()}

    def memory(self) -> dict[str, int]:
        return {"address": self.mr.buf, "rkey": self.mr.rkey}

    def connect(self, qpn: int, psn: int, gid: str) -> None:
        """INIT, RTR and RTS, as man ibv_modify_qp wants them for RC."""
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = qpn, psn, PSN
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        route = GlobalRoute(dgid=GID(gid), sgid_index=self.gid_index)
        attr.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=route)
        self.qp.to_rts(attr)

    def post(self, op: str, nbytes: int, address: int = 0, rkey: int = 0, imm: int = 0) -> None:
        sge = SGE(self.mr.buf, nbytes, self.mr.lkey)
        request = SendWR(1, num_sge=1, sg=[sge], opcode=OPCODES[op])
        if op != "send":
            request.set_wr_rdma(rkey, address)
        if op == "write_with_imm":
            request.imm_data = socket.htonl(imm)  # pyverbs leaves it in network order
        self.qp.post_send(request)

    def post_receive(self, nbytes: int) -> None:
        sge = SGE(self.mr.buf, nbytes, self.mr.lkey)
        self.qp.post_recv(RecvWR(2, num_sge=1, sg=[sge]))

    def completion(self, timeout: float) -> dict[str, int]:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            count, found = self.cq.poll(1)
            if count:
                return {
                    "status": found[0].status,
                    "opcode": found[0].opcode,
                    "nbytes": found[0].byte_len,
                    "imm": socket.ntohl(found[0].imm_data),
                }
            time.sleep(0)  # the other end may need this processor
        raise TimeoutError(f"no completion within {timeout} s")

    def show(self, nbytes: int) -> str:
        return self.mr.read(nbytes, 0).hex()

    def fill(self, text: str) -> None:
        self.mr.write(text, len(text))


def main() -> None:
    peer = Peer(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(peer, name)(**arguments)), flush=True)


if __name__ == "__main__":
    main()
