"""fork without exec: every use in the child raises and ends; the parent goes on as if nothing was."""

import gc
import os
import traceback

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import Attempt, within
from support.forking import forking
from support.keeper import keep
from support.link import until
from support.operations import USES
from support.patience import patient
from support.program import run_python
from support.system import connected_sockets


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
    status = status_of(child)
    with os.fdopen(reader, "rb") as pipe:
        return status, pipe.read().decode()


def status_of(child: int) -> int:
    """At its end, which comes in time."""
    looking = os.WEXITED | os.WNOHANG | os.WNOWAIT
    until(lambda: os.waitid(os.P_PID, child, looking), "the child has ended", 20)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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
        ours = {os.readlink(f"/proc/self/fd/{n}") for n in connected_sockets()}
        assert ours
        assert not inherited & ours


FORKS = 50  # each way

PROGRAM = """
import gc, os, sys, threading, time, warnings
import numpy as np
import zerohop as zh

warnings.simplefilter("ignore")  # of those who rightly advise against fork in a process with threads
way, p2p, forks, patience = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
a, b = (zh.Endpoint("soft0", p2p=p2p) for _ in range(2))
to_b, to_a = a.connect(b.address), b.accept()
far = b.empty(1 << 16, "uint8")
grant = b.grant(b.empty(8), timeout=1000)
source = a.register(np.ones(1 << 16, np.uint8))
large = np.ones(1 << 16)
rounds = [0] * 4
stop = False

def write(number):
    while not stop:
        transfers = [to_b.write(source, far.remote) for _ in range(4)]
        for each in transfers:
            each.wait()
        rounds[number] += 1

def register(number):
    while not stop:
        memory = a.register(large)
        to_b.write(source[:8], far.remote[:8]).wait()
        a.stats(), to_b.stats(), a.peers
        memory.close()
        rounds[number] += 1

def end():
    if way == "close":
        to_b.close()
        a.close()
        grant.revoke()
    elif way == "delete":
        for name in ("to_b", "to_a", "source", "far", "grant", "a", "b"):
            del globals()[name]
        gc.collect()
    elif way == "exit":
        sys.exit(0)
    elif way == "new":
        with zh.Endpoint("soft0") as own, zh.Endpoint("soft0") as other:
            own.connect(other.address)
    os._exit(0)

threads = [threading.Thread(target=work, args=(number,), daemon=True)
           for number, work in enumerate([write, write, register, register])]
for thread in threads:
    thread.start()
for number in range(forks):
    before = list(rounds)
    child = os.fork()
    if child == 0:
        end()
    deadline = time.monotonic() + patience
    pid = 0
    while not pid and time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.001)
    if not pid:
        os.kill(child, 9)
        os.waitpid(child, 0)
        sys.exit(f"child {number} has not ended")
    if status:
        sys.exit(f"child {number} ended with {status}")
    while rounds[number % 4] == before[number % 4]:  # the parent goes on
        time.sleep(0.001)
stop = True
for thread in threads:
    thread.join()
print("well")
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("p2p", [0, 1], ids=["soft0", "p2p"])
@pytest.mark.parametrize("way", ["close", "delete", "exit", "os_exit", "new"])
def test_every_child_ends(way, p2p):
    patience = patient(20)
    done = run_python("-c", PROGRAM, way, str(p2p), str(FORKS), str(patience), seconds=200)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stdout + done.stderr


NBYTES = 1 << 20
PAGES = 64


class Traffic:
    """All that this side does, round by round, each kind in a thread of its own, with memory of its own at the keeper."""

    def __init__(self, session, keeper, kind):
        self.ep, self.peer, self.stop = session.ep, session.peer, False
        self.kinds = [self.write, self.read, self.pages, self.count, self.message, self.notify]
        zeros, values = np.zeros(NBYTES, np.uint8), np.arange(NBYTES).astype(np.uint8)
        self.written, self.read_from, self.paged = (
            keeper.array(kind, each) for each in (zeros, values, zeros.reshape(PAGES, -1))
        )
        self.counter = keeper.array("counter", np.zeros(1, np.int64))
        self.values = values
        self.rounds = dict.fromkeys([each.__name__ for each in self.kinds], 0)
        self.source, _ = array(session.ep, kind, values)
        self.sink, self.found = array(session.ep, kind, zeros)
        self.rows, _ = array(session.ep, kind, values.reshape(PAGES, -1))

    def go(self, one):
        while not self.stop:
            one()
            self.rounds[one.__name__] += 1

    def write(self):
        self.peer.write(self.source, self.written.remote).wait()

    def read(self):
        self.peer.read(self.read_from.remote, self.sink).wait()
        assert (self.found == self.values).all()

    def pages(self):
        order = range(PAGES)
        self.peer.write_pages(self.rows, self.paged.remote, order, order).wait()

    def count(self):
        before = self.peer.fetch_add(self.counter.remote[0], 1).wait()
        assert before == self.rounds["count"]

    def message(self):
        self.peer.send(self.ep.register(self.values[:100]), tag=1).wait()

    def notify(self):
        self.peer.notify(3, 1).wait()

    def go_on(self):
        before = dict(self.rounds)
        until(lambda: all(self.rounds[name] > count for name, count in before.items()), "a round")


def keep_and_take(ep, peer, link):
    """Takes messages meanwhile."""
    into = ep.empty(100)

    def take():
        while True:
            peer.recv(into, tag=1).wait(60)

    taking = Attempt(take)
    keep(ep, peer, link)
    del taking


def refused(call):
    try:
        with within(2.0):
            call()
    except zh.Error as error:
        return "fork" in str(error)
    return False


@pytest.mark.parametrize("kind", ["numpy", "empty"])
def test_transfers_of_the_parent_end_well_while_children_live(process, kind):
    with process(keep_and_take) as s:
        keeper = s.keeper
        traffic = Traffic(s, keeper, kind)
        running = [Attempt(traffic.go, one) for one in traffic.kinds]
        traffic.go_on()
        reader, writer = os.pipe()
        children = []
        for _ in range(4):
            with forking():
                child = os.fork()
            if child == 0:
                code = 2  # an exception that nothing here expects: it may not come to pytest
                try:
                    os.close(writer)
                    well = all(map(refused, traffic.kinds)) and refused(lambda: s.ep.empty(8))
                    os.read(reader, 1)  # until the parent is through
                    code = 0 if well else 1
                finally:
                    os._exit(code)
            children.append(child)
            traffic.go_on()
        os.close(writer)  # of all: the end of the file ends the children
        traffic.stop = True
        for each in running:
            each.value()
        for child in children:
            assert status_of(child) == 0, "the child was not refused everything"
        os.close(reader)
        for kept in (traffic.written, traffic.paged):
            np.testing.assert_array_equal(kept.show().reshape(-1), traffic.values)
        assert keeper.array("numpy", np.zeros(1)).show()[0] == 0
