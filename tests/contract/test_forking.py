"""fork without exec: the child is told so at every use; the parent goes on as if nothing was."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import traceback

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import Attempt, within
from support.forking import forking
from support.keeper import Keeper, keep
from support.link import until
from support.patience import patient


def run_in_child(work) -> tuple[int, str]:
    """Forks, runs `work` in the child, and returns its exit status and what it had to say."""
    reader, writer = os.pipe()
    with forking():
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001  the child must not return into the test
            os.write(writer, traceback.format_exc().encode()[-60000:])
        finally:
            os._exit(status)
    os.close(writer)
    ended = []
    until(lambda: ended or has_ended(child, ended), "the child has ended", 20)
    with os.fdopen(reader, "rb") as pipe:
        words = pipe.read().decode()
    return ended[0], words


def has_ended(child: int, ended: list[int]) -> bool:
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid:
        ended.append(os.waitstatus_to_exitcode(status))
    return bool(pid)


def check_child(work):
    status, words = run_in_child(work)
    assert status == 0, words


def check_parent(s, keeper):
    memory, view = array(s.ep, "numpy", np.arange(1000))
    target = keeper.array("numpy", np.zeros(1000, int))
    with within(5):
        s.peer.write(memory, target.remote).wait()
    np.testing.assert_array_equal(target.show(), view)
    assert s.peer.alive


USES = {
    "write": lambda s, m, r, t: s.peer.write(m, r),
    "read": lambda s, m, r, t: s.peer.read(r, m),
    "notify": lambda s, m, r, t: s.peer.notify(1, 1),
    "fetch_add": lambda s, m, r, t: s.peer.fetch_add(r[0], 1),
    "send": lambda s, m, r, t: s.peer.send(m),
    "recv": lambda s, m, r, t: s.peer.recv(m),
    "lookup": lambda s, m, r, t: s.peer.lookup("x"),
    "wait_notify": lambda s, m, r, t: s.ep.wait_notify(1),
    "wait": lambda s, m, r, t: t.wait(),
    "register": lambda s, m, r, t: s.ep.register(np.zeros(5)),
    "empty": lambda s, m, r, t: s.ep.empty(5),
    "connect": lambda s, m, r, t: s.ep.connect(s.address),
    "accept": lambda s, m, r, t: s.ep.accept(),
}


def test_every_use_in_the_child_is_a_clear_error(process):
    with process(keep) as s:
        keeper = Keeper(s.link)
        far = keeper.array("numpy", np.zeros(5, int)).remote
        memory, _ = array(s.ep, "numpy", np.zeros(5, int))
        pending = s.peer.recv(s.ep.empty(8), tag=77)

        def child():
            assert (s.peer.alive, s.peer.why_lost) == (False, None)
            for use in USES.values():
                with pytest.raises(zh.Error, match="fork"), within(2):
                    use(s, memory, far, pending)

        check_child(child)
        check_parent(s, keeper)
        keeper.end()


def test_the_child_may_drop_and_close_everything(process):
    """Neither destructors nor close() in the child reach the parent's connections."""
    with process(keep) as s:
        keeper = Keeper(s.link)
        made = [s.ep.empty(1000), s.ep.register(np.zeros(100)), s.peer.recv(s.ep.empty(8), tag=9)]

        def child():
            made.clear()
            gc.collect()
            with within(3):
                s.peer.close()
                s.ep.close()
            del s.peer, s.ep
            gc.collect()

        check_child(child)
        check_parent(s, keeper)
        keeper.end()


def test_the_array_bytes_stay_readable_in_the_child(process):
    with process(keep) as s:
        memory = s.ep.empty(1000)
        view = np.asarray(memory)
        view[:] = 7

        def child():
            assert (view == 7).all()
            assert (np.asarray(memory) == 7).all()

        check_child(child)
        s.link.send(("end",))


def test_forks_while_bytes_flow(process):
    def go_on(s, memory, far):
        while not stop:
            s.peer.write(memory, far).wait()

    stop = []
    with process(keep) as s:
        keeper = Keeper(s.link)
        kept = keeper.array("empty", np.zeros(1 << 20, np.uint8))
        memory, view = array(s.ep, "numpy", np.ones(1 << 20, np.uint8))
        flowing = Attempt(go_on, s, memory, kept.remote)
        for _ in range(10):
            check_child(gc.collect)
            kept.show()  # the partner waits for a word, and a large process takes time to fork
        stop.append(True)
        flowing.value()
        np.testing.assert_array_equal(kept.show(), view)
        check_parent(s, keeper)
        keeper.end()


def child_of_multiprocessing(ep, memory, queue):
    try:
        ep.wait_notify(0, timeout=1)
    except zh.Error as error:
        queue.put(str(error))


def test_multiprocessing_with_its_fork_method(process):
    with process(keep) as s:
        keeper = Keeper(s.link)
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        child = context.Process(target=child_of_multiprocessing, args=(s.ep, s.ep.empty(8), queue))
        with forking():
            child.start()
        child.join(20)
        assert child.exitcode == 0
        assert "fork" in queue.get()
        check_parent(s, keeper)
        keeper.end()


NEW_IN_CHILD = """
import os, sys, numpy as np, zerohop as zh
old = zh.Endpoint({device!r})
child = os.fork()
if child == 0:
    try:
        with zh.Endpoint({device!r}, timeout=5) as a, zh.Endpoint({device!r}, timeout=5) as b:
            far = b.empty(100)
            a.connect(b.address).write(a.register(np.ones(100, np.uint8)), far.remote).wait()
            os._exit(0 if np.asarray(far).all() else 3)
    except zh.Error as error:
        os._exit(4 if "fork" in str(error) else 5)
_, status = os.waitpid(child, 0)
with zh.Endpoint({device!r}, timeout=5) as other:
    assert old.connect(other.address).alive
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_new_endpoint_in_the_child_works_or_is_refused_in_words(device):
    script = NEW_IN_CHILD.format(device=device)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True, check=False, timeout=patient(30), text=True,
    )  # fmt: skip
    assert done.returncode in (0, 4), done.stderr


def test_programs_started_by_this_one_inherit_no_descriptor(process):
    """Sockets and memory are closed on exec: a child program cannot hold a connection open."""
    with process(keep) as s:
        s.ep.empty(1000)
        listing = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in range(3, 400) "
        listing += "if os.path.islink(f'/proc/self/fd/{n}')), sep='\\n')"
        done = subprocess.run(
            [sys.executable, "-c", listing], close_fds=False, capture_output=True, check=True,
            timeout=patient(20), text=True,
        )  # fmt: skip
        for word in ("eventpoll", "eventfd", "timerfd", "memfd"):
            assert word not in done.stdout
        inherited = {line for line in done.stdout.splitlines() if line.startswith("socket:")}
        ours = {os.readlink(f"/proc/self/fd/{n}") for n in descriptors_of_tcp()}
        assert ours
        assert not inherited & ours
        s.link.send(("end",))


def descriptors_of_tcp():
    from support.system import connected_sockets

    return connected_sockets()
