"""Our queue pair plays ib_write_lat against perftest's own server: we are its client.

perftest's two sides first tell each other, over TCP, their version, buffer sizes and MTU, and four
times who they are; then each writes the number of the round to the last byte of the other's buffer.
"""

import ipaddress
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from gid import gid_index
from support.patience import patient
from support.verbs_pair import make_side, take
from zerohop import verbs

ROUNDS, NBYTES, PORT = 30, 8, 18515
KEYS_NBYTES = 108  # of the message that says who one is, with a GID
MTU_1024 = 3  # ibv_mtu
DEVICE = "rxe0"
CONNECT_TIMEOUT = patient(10.0)


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    index = str(gid_index(verbs.Device(DEVICE)))
    line = ["ib_write_lat", "-d", DEVICE, "-x", index, "-m", "1024", "-F", "-s", str(NBYTES)]
    line += ["-n", str(ROUNDS), "-p", str(PORT)]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def dial(server: subprocess.Popen[str]) -> socket.socket:
    """Connects as soon as the server listens: it takes a while to set up."""
    end = time.monotonic() + CONNECT_TIMEOUT
    while True:
        try:
            return socket.create_connection(("127.0.0.1", PORT), timeout=CONNECT_TIMEOUT)
        except ConnectionRefusedError:
            assert server.poll() is None, server.communicate()[0]
            assert time.monotonic() < end, "perftest does not listen"
            time.sleep(0.01)


def swap(connection: socket.socket, ours: bytes) -> bytes:
    """One step of the exchange: the client speaks first, both send as much."""
    connection.sendall(ours)
    theirs = b""
    while len(theirs) < len(ours):
        chunk = connection.recv(len(ours) - len(theirs))
        assert chunk, "perftest has hung up"
        theirs += chunk
    return theirs


def encode(address: verbs.QueuePairAddress, rkey: int, place: int) -> bytes:
    """lid, reads, queue pair, psn, rkey, address, GID, shared receive queue: hex between colons."""
    gid = ipaddress.IPv6Address(address.gid).packed
    head = f"{address.lid:04x}:0001:{address.number:06x}:{address.psn:06x}:{rkey:08x}:{place:016x}"
    return f"{head}:{gid.hex(':')}:{0:08x}:".encode().ljust(KEYS_NBYTES, b"\0")


def decode(message: bytes) -> tuple[verbs.QueuePairAddress, tuple[int, int]]:
    words = message.rstrip(b"\0").decode().split(":")
    lid, reads, number, psn, rkey, place = (int(word, 16) for word in words[:6])
    gid = bytes.fromhex("".join(words[6:22]))
    raw = struct.pack(">IIH16sBBB", number, psn, lid, gid, MTU_1024, reads, reads)
    return verbs.QueuePairAddress.from_bytes(raw), (place, rkey)


def test_a_ping_pong_with_perftest(server: subprocess.Popen[str]) -> None:
    side = make_side(verbs.Device(DEVICE))
    source = side.mr[NBYTES : 2 * NBYTES]  # what we write; its answers come to the bytes before
    place, rkey = side.mr.remote
    with ExitStack() as stack:
        connection = stack.enter_context(dial(server))
        version = swap(connection, b"5.92".ljust(16, b"\0"))
        assert float(version.rstrip(b"\0")) >= 5.32, f"a perftest too old to talk to: {version!r}"
        swap(connection, struct.pack(">i", 4096))  # bytes between two buffers
        swap(connection, struct.pack(">i", 64))  # a cache line
        assert int(swap(connection, b"3\0").rstrip(b"\0")) == MTU_1024
        keys = encode(side.qp.address(), rkey, place)
        theirs, remote = decode(swap(connection, keys))
        swap(connection, keys)
        side.qp.connect(theirs)
        swap(connection, keys)
        swap(connection, keys)  # both are connected

        for number in range(1, ROUNDS + 1):  # the server begins
            wait_for(side.array, number)
            side.array[2 * NBYTES - 1] = number
            side.qp.post_send("write", source, remote=remote)
            assert take(side.cq)[0].ok
        words, _ = server.communicate(timeout=patient(10))
    assert server.returncode == 0, words
    assert f"{ROUNDS}" in words


def wait_for(array: np.ndarray, number: int) -> None:
    end = time.monotonic() + patient(5)
    while array[NBYTES - 1] != number:
        assert time.monotonic() < end, f"round {number} was not answered"
        time.sleep(0)  # perftest needs a processor too
