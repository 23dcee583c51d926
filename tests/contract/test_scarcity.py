"""When the system runs out of something: a clear error, and life goes on once there is some again."""

import gc
import os
import resource
import shutil
import sys
from contextlib import contextmanager

import pytest
import zerohop as zh
from support.attempt import Attempt, within
from support.keeper import keep
from support.program import run

# Everything that could want shared memory; prints "works" or the typed error.
USE_ALL = """
import numpy as np, zerohop as zh
if {filled}:
    open("/dev/shm/full", "wb", 0).write(bytes({filled}))
try:
    with zh.Endpoint({device!r}, timeout=10) as a, zh.Endpoint({device!r}, timeout=10) as b:
        peer = a.connect(b.address)
        far, near = b.empty(8 << 20), a.empty(8 << 20)
        np.asarray(near)[:] = 5
        b.share("x", far)
        peer.write(near, peer["x"], notify=(1, 1)).wait()
        assert b.wait_notify(1) == 1
        assert (np.asarray(far) == 5).all()
        print("works")
except zh.Error as error:
    print("refused:", error)
"""


def private_mounts() -> str | None:
    """Why this process cannot mount for itself alone; None when it can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if shutil.which("unshare") is None:
        return "unshare (util-linux) is not installed"
    probe = run("unshare", "-m", "true", seconds=10)
    return None if probe.returncode == 0 else "mount namespaces are not allowed here"


@pytest.mark.parametrize(("options", "filled"), [("size=16k", 0), ("size=16k", 1 << 20), ("ro", 0)])
def test_a_full_dev_shm_is_no_crash(device, options, filled):
    """A /dev/shm of 16 KiB, empty or full, or to be read only: touching mapped memory with no room is SIGBUS."""
    if reason := private_mounts():
        pytest.skip(reason)
    mount = f'mount -t tmpfs -o {options} none /dev/shm && exec "$@"'
    code = USE_ALL.format(device=device, filled=filled)
    done = run("unshare", "-m", "sh", "-c", mount, "sh", sys.executable, "-c", code, seconds=40)
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip()
    assert said == "works" or said.startswith("refused:"), said
    if said != "works":
        assert "/dev/shm" in said or "space" in said


@contextmanager
def few_descriptors(free):
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    holes = [os.open("/dev/null", os.O_RDONLY) for _ in range(used)]
    for hole in holes:  # numbers below `used` that were free are taken as well
        if hole >= used:
            os.close(hole)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for hole in holes:
            if hole < used:
                os.close(hole)


def open_many(device, opened):
    for _ in range(100):
        opened.append(zh.Endpoint(device, timeout=2))


def connect_many(ep, others):
    for other in others:
        ep.connect(other.address, timeout=2)


@pytest.mark.parametrize("free", range(12))
def test_without_descriptors_opening_fails_clearly(device, free):
    """The n-th descriptor is missing, for every n: a typed error, nothing leaked."""
    zh.Endpoint(device).close()  # what is opened once is open now
    gc.collect()  # of earlier tests: else it may go in the middle of this one
    before = len(os.listdir("/proc/self/fd"))
    opened = []
    with few_descriptors(free), within(5):
        with pytest.raises(zh.Error, match=r"open files|descriptor"):
            open_many(device, opened)
        for one in opened:
            one.close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
    zh.Endpoint(device).close()


@pytest.mark.filterwarnings("ignore:endpoint cannot accept:RuntimeWarning")  # rightly said
@pytest.mark.parametrize("free", range(9))
def test_without_descriptors_connecting_fails_clearly(open_endpoint, free):
    """Either side may be the one that lacks it; afterwards both connect as if nothing was."""
    ep, others = open_endpoint(), [open_endpoint() for _ in range(4)]
    with few_descriptors(free), pytest.raises(zh.Error), within(9):
        connect_many(ep, others)
    for other in others:
        with within(5):
            assert ep.connect(other.address).alive


def starve_and_recover(ep, peer, link):
    with few_descriptors(0):
        link.meet("starving")
        link.meet("tried")
        cpu = os.times()
        link.meet("measured", timeout=10)
        used = os.times()
    busy = used.user + used.system - cpu.user - cpu.system
    link.send(busy)
    keep(ep, peer, link)


def test_a_listener_without_descriptors_goes_on_later(process, open_endpoint):
    """Callers are refused or wait; the listener neither dies nor burns the CPU meanwhile."""
    ep = open_endpoint()
    with process(starve_and_recover) as s:
        s.link.meet("starving")
        with pytest.raises(zh.Error), within(4):
            ep.connect(s.address, timeout=1)
        waiting = Attempt(ep.connect, s.address, 2)  # keeps knocking for two seconds
        s.link.meet("tried")
        waiting.failure(zh.Error, timeout=5)
        s.link.meet("measured")
        assert s.link.recv() < 1.2
        with within(5):
            assert ep.connect(s.address).alive
        s.check()
