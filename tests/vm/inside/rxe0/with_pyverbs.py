"""Our queue pair talks to one that rdma-core's own pyverbs made: every operation, both ways."""

import ipaddress
import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gid import gid_index
from support.patience import patient
from support.verbs_pair import NBYTES, Side, make_side, take, take_error
from zerohop import verbs

SYSTEM_PYTHON = "/usr/bin/python3"  # Debian's python3-pyverbs is built for this one
SCRIPT = Path(__file__).with_name("pyverbs_peer.py")
DEVICE = "rxe0"
MTU_1024 = 3  # ibv_mtu


class PyverbsPeer:
    """Tells the other program what to do: peer("post", op="send", nbytes=8)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, name: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "pyverbs has failed: what it said stands above"
        return json.loads(line)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(patient(10)) == 0


@pytest.fixture
def peer() -> Iterator[PyverbsPeer]:
    index = gid_index(verbs.Device(DEVICE))
    with subprocess.Popen(
        [SYSTEM_PYTHON, SCRIPT, DEVICE, str(index)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            made = PyverbsPeer(process)
            yield made
            made.end()
        finally:
            process.kill()


def address_of(facts: dict[str, Any]) -> verbs.QueuePairAddress:
    """The wire form of ours: number, psn, lid, gid, mtu, reads in and out (big-endian)."""
    gid = ipaddress.IPv6Address(facts["gid"]).packed
    return verbs.QueuePairAddress.from_bytes(
        struct.pack(">IIH16sBBB", facts["qpn"], facts["psn"], 0, gid, MTU_1024, 1, 1)
    )


@pytest.fixture
def ends(peer: PyverbsPeer) -> tuple[Side, PyverbsPeer, tuple[int, int]]:
    """Ours, theirs, and (address, rkey) of their memory, with the two connected."""
    side = make_side(verbs.Device(DEVICE))
    facts = peer("facts")
    side.qp.connect(address_of(facts))
    ours = side.qp.address()
    gid = ipaddress.IPv6Address(ours.gid).exploded  # the only form that pyverbs reads
    peer("connect", qpn=ours.number, psn=ours.psn, gid=gid)
    side.array[:] = np.arange(NBYTES) % 251
    return side, peer, (facts["address"], facts["rkey"])


def test_we_write_and_read_its_memory(ends: Any) -> None:
    side, peer, remote = ends
    side.qp.post_send("write", side.mr[0:3000], remote=remote)  # three packets
    assert take(side.cq)[0].opcode == "RDMA_WRITE"
    assert bytes.fromhex(peer("show", nbytes=3000)) == side.array[:3000].tobytes()
    peer("fill", text="from the other side")
    side.qp.post_send("read", side.mr[0:19], remote=remote)
    assert take(side.cq)[0].byte_len == 19
    assert side.array[:19].tobytes() == b"from the other side"


def test_it_writes_and_reads_ours(ends: Any) -> None:
    side, peer, _ = ends
    address, rkey = side.mr.remote
    peer("post", op="read", nbytes=2000, address=address, rkey=rkey)
    assert peer("completion", timeout=patient(5))["status"] == 0
    assert bytes.fromhex(peer("show", nbytes=2000)) == side.array[:2000].tobytes()
    peer("fill", text="written by pyverbs")
    peer("post", op="write", nbytes=18, address=address, rkey=rkey)
    assert peer("completion", timeout=patient(5))["status"] == 0
    assert side.array[:18].tobytes() == b"written by pyverbs"


def test_messages_and_immediates_go_both_ways(ends: Any) -> None:
    side, peer, remote = ends
    peer("post_receive", nbytes=100)
    side.qp.post_send("send", side.mr[0:64])
    take(side.cq)
    assert peer("completion", timeout=patient(5))["nbytes"] == 64
    assert bytes.fromhex(peer("show", nbytes=64)) == side.array[:64].tobytes()

    peer("post_receive", nbytes=0)
    side.qp.post_send("write_with_imm", side.mr[0:8], remote=remote, imm=0x01020304)
    take(side.cq)
    assert peer("completion", timeout=patient(5))["imm"] == 0x01020304

    side.qp.post_receive(side.mr[100:200])
    side.qp.post_receive()
    peer("fill", text="a message")
    peer("post", op="send", nbytes=9)
    assert peer("completion", timeout=patient(5))["status"] == 0
    assert take(side.cq)[0].byte_len == 9
    assert side.array[100:109].tobytes() == b"a message"
    address, rkey = side.mr.remote
    peer("post", op="write_with_imm", nbytes=9, address=address, rkey=rkey, imm=0xA1B2C3D4)
    assert peer("completion", timeout=patient(5))["status"] == 0
    assert take(side.cq)[0].imm_data == 0xA1B2C3D4


def test_atomics_on_its_memory(ends: Any) -> None:
    side, peer, remote = ends
    old = side.array[:8].view(np.uint64)
    side.qp.post_send("fetch_add", side.mr[0:8], remote=remote, add=5)
    take(side.cq)
    assert old[0] == 0
    side.qp.post_send("compare_swap", side.mr[0:8], remote=remote, compare=5, swap=77)
    take(side.cq)
    assert old[0] == 5
    assert int.from_bytes(bytes.fromhex(peer("show", nbytes=8)), "little") == 77


def test_its_refusal_is_our_error(ends: Any) -> None:
    side, _, (address, rkey) = ends
    side.qp.post_send("write", side.mr[0:8], remote=(address, rkey ^ 1))
    assert take_error(side).status == "IBV_WC_REM_ACCESS_ERR"
