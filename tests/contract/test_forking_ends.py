"""fork while threads write: however the child ends, it does, whatever lock a thread of its parent held at that moment."""

import pytest
from support.patience import patient
from support.program import run_python

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
