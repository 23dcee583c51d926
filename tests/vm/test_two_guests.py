"""Two hosts on one wire, which is cut and healed while bytes are on it.

On Soft-RoCE and on the software HCA: errors have the same words.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from vm.interpreter import Interpreter, Programs, RemoteError
from vm.pair import Pair
from vm.stream import CODE, FOUND, STOP, Stream

pytestmark = pytest.mark.timeout(300)

AWAY = 1.0  # seconds without the wire: longer than a queue pair tries again
GRACE = (
    1.5  # ... that leave the Peer alive: it is lost after 3.5 s of silence, and TCP may wait, too
)
LOST_WITHIN = 5.0 + 5.0  # seconds: what is guaranteed, and what an emulated processor may add

SETUP = """
import errno, time, numpy as np, zerohop as zh
nbytes = 4 << 20
ep = zh.Endpoint({device!r}, timeout=60.0)
inbox = ep.empty(nbytes)
counter = ep.register(np.zeros(1, np.int64))
ep.share("inbox", inbox)
ep.share("counter", counter)

def dial(address):
    # After a cut the kernel says that there is no way, until it has asked for the neighbour again.
    end = time.monotonic() + 60
    while True:
        try:
            return ep.connect(address, timeout=60)
        except zh.PeerLost as error:
            if error.code != errno.EHOSTUNREACH or time.monotonic() > end:
                raise
"""


@dataclass
class Sides(Programs):
    """Each has `ep`; connect() gives each a `peer`, in place of the last one."""

    device: str

    def open(self, side: Interpreter) -> None:
        side.run(SETUP.format(device=self.device), timeout=120)

    def connect(self) -> None:
        self.a.run("if 'peer' in globals(): peer.close()")
        self.meet("dial")

    def stream(self) -> None:
        """From now on a writes without end, and b waits for a notification."""
        self.b.begin("ep.wait_notify(9, timeout=120)")
        self.a.begin("""
            data = ep.empty(nbytes)
            inbox_there = peer["inbox"]
            for count in range(100000):
                peer.write(data, inbox_there, timeout=120).wait(120)
                if count == 2:
                    say("streaming")
        """)
        self.a.heard("streaming", 60)

    def check_a_transfer(self, seed: int) -> None:
        """Bytes written by a, with a notification, are those that b then finds."""
        self.check_sum(seed, 'peer.write(ep.register(data), peer["inbox"]')


@pytest.fixture(scope="module")
def pair():
    with Pair(wires=1) as made:
        yield made


@pytest.fixture(scope="module", params=["soft0@eth0", "rxe0"])
def programs(pair, request):
    setup = SETUP.format(device=request.param)
    made = Sides(pair, *(Interpreter(guest, setup) for guest in pair.guests), request.param)
    with made:
        yield made


@pytest.fixture
def sides(programs):
    """Both on a whole wire, connected anew."""
    programs.pair.wires[0].heal()
    programs.connect()
    return programs


def lost(side: Interpreter, cut_at: float) -> RemoteError:
    """The end of what the side was doing: PeerLost, in the guaranteed time after the cut."""
    with pytest.raises(RemoteError) as caught:
        side.finish(60)
    took = time.monotonic() - cut_at
    assert (caught.value.kind, caught.value.code) == ("PeerLost", 0), caught.value
    assert took < LOST_WITHIN, f"PeerLost came after {took:.1f} s"
    return caught.value


def test_every_operation_crosses_the_wire(sides):
    sides.check_a_transfer(seed=1)
    assert sides.a.run('answer = peer.fetch_add(peer["counter"][0], 5).wait()') in (0, None)
    assert sides.b.run("answer = int(np.asarray(counter)[0])") == 5
    sides.a.run("""
        back = ep.empty(nbytes)
        peer.read(peer["inbox"], back).wait()
        assert np.array_equal(np.asarray(back), data)
    """)
    sides.b.begin(
        "into = ep.empty(100000); peer.recv(into, tag=3).wait(); answer = int(np.asarray(into)[9])"
    )
    sides.a.run("peer.send(ep.register(np.full(100000, 7, np.uint8)), tag=3).wait()")
    assert sides.b.finish(60) == 7


@pytest.mark.parametrize("cut", ["both ends see it", "one end sees nothing"])
def test_a_cut_wire_ends_what_is_under_way_and_a_healed_one_serves_again(sides, cut):
    sides.check_a_transfer(seed=2)
    sides.stream()
    (wire,) = sides.pair.wires
    wire.cut(*(() if cut == "both ends see it" else (1,)))
    cut_at = time.monotonic()
    error = lost(sides.a, cut_at)
    assert error.effect in ("some", "all"), error
    lost(sides.b, cut_at)
    with pytest.raises(RemoteError, match="PeerLost"):
        sides.a.run("peer.write(data, inbox_there)")

    wire.heal()
    sides.connect()
    sides.check_a_transfer(seed=3)


def stream_while(sides: Sides, change: Callable[[], None]) -> Stream | None:
    """What a's stream met; None when `change` took so long that the Peer may rightly be lost."""
    sides.connect()
    sides.b.run("np.asarray(inbox)[:] = 0; np.asarray(counter)[0] = 0")
    sides.pair.a.run(["rm", "-f", STOP], timeout=60)
    sides.a.begin(CODE)
    sides.a.heard("streaming", 60)
    began = time.monotonic()
    change()
    took = time.monotonic() - began
    sides.pair.a.run(["touch", STOP], timeout=60)
    try:
        return Stream(**sides.a.finish(120))
    except RemoteError as error:
        if error.kind != "PeerLost" or took < GRACE:
            raise
        return None


def survives(sides: Sides, change: Callable[[], None], seed: int) -> Stream:
    """The same Peer goes on, and what was on the wire is done once or fails as it says."""
    attempts = (stream_while(sides, change) for _ in range(5))
    stream = next((one for one in attempts if one is not None), None)
    assert stream is not None, "this machine is too busy to bring the wire back in time"
    sides.a.run("assert peer.alive; peer.notify(5, 1).wait()")
    assert sides.b.run("answer = ep.wait_notify(5, timeout=60)") == 1
    stream.check(*sides.b.run(FOUND))
    sides.check_a_transfer(seed)
    return stream


@pytest.mark.parametrize("cut", ["both ends see it", "one end sees nothing"])
def test_a_wire_that_is_healed_in_time_serves_the_same_peer(sides, cut):
    (wire,) = sides.pair.wires

    def change() -> None:
        wire.cut(*(() if cut == "both ends see it" else (1,)))
        time.sleep(AWAY)  # not to wait for anything: this is what happens to the wire
        wire.heal()

    stream = survives(sides, change, seed=8)
    assert stream.longest > AWAY / 2, "nothing was on the wire when it was cut"


only_rxe0 = pytest.mark.parametrize("programs", ["rxe0"], indirect=True)


@only_rxe0
def test_a_device_removed_while_in_use(sides):
    """The kernel waits until nobody has it open: the program hears of it, and closes it."""
    sides.check_a_transfer(seed=5)
    sides.stream()
    guest = sides.pair.a
    removing = guest.start(["rdma", "link", "delete", "rxe0"])
    removed_at = time.monotonic()
    assert "rxe0 is being removed" in str(lost(sides.a, removed_at))
    lost(sides.b, removed_at)
    with pytest.raises(RemoteError, match="PeerLost"):
        sides.a.run("peer.write(data, inbox_there)")
    sides.a.run("ep.close()")  # all other names stay
    removing.check(60)
    with pytest.raises(RemoteError, match="VerbsError"):
        sides.open(sides.a)

    guest.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0"], timeout=60)
    sides.open(sides.a)
    sides.connect()
    sides.check_a_transfer(seed=6)


LINK_GOES_DOWN_AND_UP = """
import subprocess

def link(state):
    subprocess.run(["ip", "link", "set", "eth0", state], check=True)

def await_event(kind):
    end = time.monotonic() + 60
    while kind not in [e["type"] for e in ep.device_events if e["time"] >= since]:
        assert time.monotonic() < end, (kind, ep.device_events)
        time.sleep(0.01)

data, inbox_there = ep.empty(nbytes), peer["inbox"]
since, began = time.time(), time.monotonic()
link("down")
await_event("PORT_ERR")
transfer = peer.write(data, inbox_there)
end = time.monotonic() + 1
while not transfer.done and time.monotonic() < end:
    time.sleep(0.01)
link("up")
took = time.monotonic() - began
await_event("PORT_ACTIVE")
events = [e for e in ep.device_events if e["time"] >= since]
try:
    transfer.wait(60)
    answer = ["done", "", took, events]
except zh.Error as error:
    answer = [type(error).__name__, str(error), took, events]
"""


@only_rxe0
def test_a_network_interface_that_goes_down_and_comes_back(sides):
    """The device tells of it, and the transfer of the time between says why it failed."""
    for _ in range(5):
        sides.check_a_transfer(seed=9)
        kind, words, took, events = sides.a.run(LINK_GOES_DOWN_AND_UP, timeout=180)
        if kind != "PeerLost" or took < GRACE + 1:
            break
        sides.connect()  # it took so long that the Peer may rightly be lost
    assert kind == "VerbsError", words
    assert "rxe0" in words
    assert "written" in words
    for event in events:
        assert (event["device"], event["message"] != "") == ("rxe0", True)
        if event["type"] in ("PORT_ERR", "PORT_ACTIVE"):
            assert event["port"] == 1
    sides.a.run("assert peer.alive")
    sides.check_a_transfer(seed=10)


@only_rxe0
def test_a_network_interface_that_comes_back_in_mid_transfer(sides):
    """What was sent, and not acknowledged before it went down, may have been done."""
    guest = sides.pair.a

    def change() -> None:
        for state in ("down", "up"):
            guest.run(["ip", "link", "set", "eth0", state], timeout=60)

    survives(sides, change, seed=11)


@only_rxe0
def test_doctor_checks_a_pair_of_hosts(sides):
    """`zerohop doctor --listen` on one side, `--peer` on the other: each route that exists works."""
    doctor = [sides.pair.a.machine.python, "-m", "zerohop", "doctor", "--verbs", "rxe0"]
    listening = sides.pair.b.start([*doctor, "--listen"])
    address = listening.expect("\n", timeout=120).strip()
    words = sides.pair.a.run([*doctor, "--json", "--peer", address], timeout=120)
    listening.kill()
    report = json.loads(words)
    assert report["works"]
    found = {trial["route"]: trial for trial in report["trials"]}
    assert found["host"]["state"] == "ok"
    assert "rxe0" in found["host"]["evidence"]
    assert {found[route]["state"] for route in ("p2p", "gpudirect", "staged")} == {"absent"}


@only_rxe0
def test_verify_adapter_between_two_hosts(sides):
    """`zerohop verify --adapter --listen` on one side, `--peer` on the other."""
    verify = [sides.pair.a.machine.python, "-m", "zerohop", "verify", "--adapter", "rxe0"]
    listening = sides.pair.b.start([*verify, "--listen", "10.77.0.2:0"])
    address = listening.expect("\n", timeout=120).strip()
    words = sides.pair.a.run([*verify, "--quick", "--json", "--peer", address], timeout=400)
    listening.kill()
    report = json.loads(words)
    assert report["facts"]["between"].startswith("this host and 10.77.0.2:")
    outcomes = {step["name"]: step["outcome"] for step in report["steps"]}
    assert "fail" not in outcomes.values()
    for name in ("write and read", "srq exhausted", "64 queue pairs", "notifications", "latency"):
        assert outcomes[name] == "pass"


@only_rxe0
def test_a_guest_whose_plug_is_pulled_is_lost(sides):
    """The last one: nothing runs in that guest any more."""
    sides.check_a_transfer(seed=4)
    sides.a.begin("ep.wait_notify(9, timeout=120)")
    sides.pair.b.kill()
    lost(sides.a, time.monotonic())
