"""A notebook's kernel that is interrupted leaves everything usable; one that is restarted leaves nothing at its peers.

The peer is this process; the kernel is another one.
"""

import gc
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from jupyter_client.manager import start_new_kernel
from support.link import until
from support.patience import LOST_WITHIN, patient

SECONDS = patient(60)  # for a kernel to start, or a cell to end

SETUP = """
import numpy as np, subprocess, sys
import zerohop as zh

ep = zh.Endpoint(device="soft0", name="kernel", timeout=60)
peer = ep.connect(bytes.fromhex({address!r}))
mine = ep.empty(1000, "float64")
ep.share("mine", mine)
"""


class Kernel:
    """A kernel in a process of its own, as a notebook has it."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(
            startup_timeout=SECONDS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def begin(self, code: str) -> str:
        """The cell; it has begun when this returns."""
        cell = self.client.execute(f"print('begun')\n{code}", stop_on_error=False)
        while True:
            message = self.client.get_iopub_msg(timeout=SECONDS)
            mine = message["parent_header"].get("msg_id") == cell
            if mine and message["msg_type"] == "stream":
                return cell

    def end(self, cell: str) -> dict[str, Any]:
        while True:
            reply = self.client.get_shell_msg(timeout=SECONDS)
            if reply["parent_header"].get("msg_id") == cell:
                return reply["content"]

    def run(self, code: str, answer: str = "None") -> str:
        """What the expression `answer` is behind the code."""
        asked = {"answer": answer}
        content = self.end(self.client.execute(code, user_expressions=asked, stop_on_error=False))
        assert content["status"] == "ok", "\n".join(content.get("traceback", []))
        reported = content["user_expressions"]["answer"]
        assert reported["status"] == "ok", reported
        return reported["data"]["text/plain"]

    def restart(self, *, killed: bool) -> None:
        self.manager.restart_kernel(now=killed)
        self.client.wait_for_ready(timeout=SECONDS)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def far():
    with zh.Endpoint(device="soft0", name="far") as endpoint:
        yield endpoint


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    started = Kernel()
    yield started
    started.close()


WAITS = {
    "a notification": "ep.wait_notify(5)",
    "a transfer": "received.wait()",
    "await": "await received",
    "await a notification": "await zh.aio.wait_notify(ep, 5)",
    "a name": 'peer.lookup("nothing")',
    "a peer": "ep.accept()",
    "another process": "helper.wait()",
}


@pytest.mark.timeout(180)
def test_an_interrupted_cell_leaves_everything_usable(far, kernel):
    kernel.run(SETUP.format(address=far.address.hex()))
    kernel.run("inbox = np.zeros(3000); received = peer.recv(inbox, tag=1)")
    kernel.run("code = 'input()'")
    # In a session of its own: a kernel is interrupted together with all processes of its own session.
    options = "stdin=subprocess.PIPE, start_new_session=True"
    kernel.run(f"helper = subprocess.Popen([sys.executable, '-c', code], {options})")
    back = far.accept()
    for turn, (name, wait) in enumerate([*WAITS.items()] * 2, 1):
        cell = kernel.begin(wait)
        begin = time.monotonic()
        kernel.manager.interrupt_kernel()
        content = kernel.end(cell)
        assert content["status"] == "error", name
        assert content["ename"] == ("CancelledError" if "await" in wait else "KeyboardInterrupt")
        assert time.monotonic() - begin < LOST_WITHIN, name
        # One-sided, both ways, and atomics.
        back.write(np.full(1000, float(turn)), back["mine"], notify=(6, turn)).wait()
        assert kernel.run("", "ep.wait_notify(6, timeout=10)") == f"{turn}"
        assert kernel.run("", "float(np.asarray(mine).sum())") == f"{1000.0 * turn}"
        kernel.run(f"peer.notify(7, {turn}).wait()")
        assert far.wait_notify(7, timeout=10) == turn
        assert kernel.run("", "received.done, peer.alive") == "(False, True)"
    # The Transfer that was waited for so often ends as if nothing had been.
    back.send(np.ones(3000), tag=1)
    assert kernel.run("", "received.wait(10), float(inbox.sum())") == "(24000, 3000.0)"
    # `await` has its place in the event loop again, too.
    kernel.run("received = peer.recv(inbox, tag=1)")
    back.send(np.full(3000, 2.0), tag=1)
    assert kernel.run("nbytes = await received", "nbytes, float(inbox.sum())") == "(24000, 6000.0)"
    # Other processes are met as before.
    kernel.run("helper.communicate(b'a line', timeout=20)")
    assert kernel.run("", "helper.returncode") == "0"
    with zh.Endpoint(device="soft0", name="third", p2p=0) as third:
        address = bytes.fromhex(kernel.run("", "ep.address.hex()").strip("'"))
        to_kernel = third.connect(address)
        assert kernel.run("", "ep.accept(10).name") == "'third'"
        assert to_kernel.fetch_add(to_kernel["mine"][0].view("int64"), 1).wait() != 0
    kernel.run("ep.close()")


def held() -> dict[str, int]:
    """What this process has: descriptors, threads, mappings of others' memory."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "mappings": sum("memfd:" in line or "/dev/shm" in line for line in maps),
    }


def sockets() -> set[str]:
    """Each has a name of its own, which no later one has."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(descriptor))
    return {name for name in found if name.startswith("socket:")}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "asked to end"])
def test_a_restarted_kernel_leaves_nothing_at_its_peer(far, kernel, killed):
    inbox = far.empty(1000, "float64")
    far.share("inbox", inbox)
    gc.collect()  # what earlier tests have left
    before = held()
    for _ in range(3):
        alone = sockets()
        kernel.run(SETUP.format(address=far.address.hex()))
        kernel.run("peer.write(np.ones(1000), peer['inbox'], notify=(1, 1)).wait()")
        kernel.run("waiting = peer.recv(np.zeros(9), tag=9)")
        assert far.wait_notify(1, timeout=10) == 1
        back = far.accept()
        for require in (None, "host"):
            back.write(np.full(1000, 3.0), back["mine"], require=require).wait()
        never = [back.recv(np.zeros(5), tag=5), back.send(np.zeros(100_000), tag=6)]
        assert sockets() - alone  # that there is something can be seen
        assert held()["mappings"] > before["mappings"]
        kernel.restart(killed=killed)
        for transfer in never:
            with pytest.raises(zh.PeerLost):
                transfer.wait(LOST_WITHIN)
        assert not back.alive
        assert far.peers == []
        del back, transfer, never
        until(lambda: gc.collect() >= 0 and no_more(before), f"nothing is left beyond {before}")


def no_more(before: dict[str, int]) -> bool:
    now = held()
    return all(now[what] <= before[what] for what in before)
