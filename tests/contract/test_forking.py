"""fork without exec: the child is told so at every use; the parent goes on as if nothing was."""

import gc
import os
import traceback

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import within
from support.forking import forking
from support.keeper import keep
from support.link import until
from support.operations import USES
from support.program import run_python


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


def check_parent(s):
    with within(5):
        s.check()
    assert s.peer.alive


def test_every_use_in_the_child_is_a_clear_error(process):
    with process(keep) as s:
        far = s.keeper.array("numpy", np.zeros(5, int)).remote
        memory, _ = array(s.ep, "numpy", np.zeros(5, int))
        made = s.ep.empty(1000)
        view = np.asarray(made)
        view[:] = 7
        pending = s.peer.recv(s.ep.empty(8), tag=77)

        def child():
            assert (view == 7).all()  # bytes stay readable
            assert (np.asarray(made) == 7).all()
            assert (s.peer.alive, s.peer.why_lost) == (False, None)
            for use in (*USES.values(), lambda *_: pending.wait()):
                with pytest.raises(zh.Error, match="fork"), within(2):
                    use(s, memory, far)

        check_child(child)
        check_parent(s)


def test_the_child_may_drop_and_close_everything(process):
    """Neither destructors nor close() in the child reach the parent's connections."""
    with process(keep) as s:
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
        check_parent(s)


def test_programs_started_by_this_one_inherit_no_descriptor(process):
    """Sockets and memory are closed on exec: a child program cannot hold a connection open."""
    with process(keep) as s:
        s.ep.empty(1000)
        listing = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in range(3, 400) "
        listing += "if os.path.islink(f'/proc/self/fd/{n}')), sep='\\n')"
        done = run_python("-c", listing, seconds=20, close_fds=False)
        assert done.returncode == 0, done.stderr
        for word in ("eventpoll", "eventfd", "timerfd", "memfd"):
            assert word not in done.stdout
        inherited = {line for line in done.stdout.splitlines() if line.startswith("socket:")}
        ours = {os.readlink(f"/proc/self/fd/{n}") for n in descriptors_of_tcp()}
        assert ours
        assert not inherited & ours


def descriptors_of_tcp():
    from support.system import connected_sockets

    return connected_sockets()
