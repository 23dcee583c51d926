"""Two hosts on two wires, a Soft-RoCE device on each: shared by large transfers, and cut one at a time."""

import pytest

from vm.interpreter import Interpreter, Programs, RemoteError
from vm.pair import Pair

pytestmark = pytest.mark.timeout(600)

IMPORTS = "import time, numpy as np, zerohop as zh"
STRIPE_BYTES = 1 << 16
BLOCKS = 64  # of a write_many
TOLERANCE = 2 * 4096  # bytes by which equal shares may differ: they are cut at multiples of 4 KiB

SETUP = """
if "ep" in globals():
    ep.close()
nbytes = 16 << 20  # takes these guests about a second
ep = zh.Endpoint("rxe0,rxe1", host={host!r}, stripe_bytes={stripe_bytes}, timeout=60.0)
inbox = ep.empty(nbytes)
counter = ep.register(np.zeros(1, np.int64))
ep.share("inbox", inbox)
ep.share("counter", counter)
"""

# Pairs of blocks in the opposite order, so that a share is no contiguous range at either end.
PAIRS = f"""
block = nbytes // {BLOCKS}
target = peer["inbox"]
pairs = [
    (source[i * block : (i + 1) * block], target[i * block : (i + 1) * block])
    for i in reversed(range({BLOCKS}))
]
"""


class Sides(Programs):
    """Each has `ep` and `peer`, `inbox` and, on side a, `source` and `pairs`."""

    def connect(self, control: int) -> None:
        """Anew, with the control connection on that wire."""
        for number, side in enumerate((self.a, self.b)):
            host = self.pair.wires[control].address(number)
            side.run(SETUP.format(host=host, stripe_bytes=STRIPE_BYTES), timeout=120)
        self.meet("ep.connect")
        self.a.run("source = ep.register(np.zeros(nbytes, np.uint8))" + PAIRS)

    def check_a_transfer(self, seed: int, call: str = "write_many(pairs") -> None:
        """b finds all bytes in place at the very moment when it sees the notification."""
        self.check_sum(seed, f"np.asarray(source)[:] = data; peer.{call}")

    def moved(self) -> list[int]:
        return list(self.a.run("answer = [rail['bytes_out'] for rail in peer.stats()['rails']]"))

    def rail(self, number: int) -> dict[str, object]:
        return dict(self.a.run(f"answer = peer.stats()['rails'][{number}]"))

    def wait_until_all_serve(self) -> None:
        for side in (self.a, self.b):
            side.run("""
                end = time.monotonic() + 60
                while not all(rail["serves"] for rail in peer.stats()["rails"]):
                    assert time.monotonic() < end, peer.stats()
                    time.sleep(0.05)
            """, timeout=90)  # fmt: skip


@pytest.fixture(scope="module")
def programs():
    with (
        Pair(wires=2) as pair,
        Sides(pair, *(Interpreter(guest, IMPORTS) for guest in pair.guests)) as made,
    ):
        yield made


@pytest.fixture
def sides(programs):
    for wire in programs.pair.wires:
        wire.heal()
    return programs


def assert_equal_shares(before: list[int], after: list[int], total: int) -> None:
    grown = [b - a for a, b in zip(before, after, strict=True)]
    assert sum(grown) == total
    assert abs(grown[0] - grown[1]) <= TOLERANCE, grown


def test_an_adapter_and_the_software_hca_are_no_pair(sides):
    with pytest.raises(RemoteError, match=r"ValueError: 'soft0' and 'rxe0' cannot be rails"):
        sides.a.run('zh.Endpoint("rxe0,soft0")')


def test_both_wires_carry_equal_shares_and_the_notification_comes_behind(sides):
    sides.connect(control=0)
    nbytes = sides.a.run("answer = nbytes")
    for seed, call in enumerate(["write_many(pairs", "write(source, target"] * 2, start=1):
        before = sides.moved()
        sides.check_a_transfer(seed, call)
        assert_equal_shares(before, sides.moved(), nbytes)
    sides.a.run("""
        back = ep.empty(nbytes)
        peer.read(target, back).wait()
        assert np.array_equal(np.asarray(back), np.asarray(source))
    """)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("seen_by", ["both ends", "one end"])
def test_a_cut_wire_is_left_for_the_other_and_taken_again_when_healed(sides, number, seen_by):
    other = 1 - number
    sides.connect(control=other)
    sides.check_a_transfer(seed=1)

    sides.a.begin("""
        transfer = peer.write_many(pairs, notify=(7, 2))
        say("posted")
        transfer.wait(60)
    """)
    sides.a.heard("posted", 60)
    wire = sides.pair.wires[number]
    wire.cut(*(() if seen_by == "both ends" else (1,)))
    with pytest.raises(RemoteError) as caught:
        sides.a.finish(60)
    error = caught.value
    assert (error.kind, error.effect in ("some", "all")) == ("VerbsError", True), error
    assert sides.b.run("answer = ep.peek_notify(7)") == 0  # never: a part of the data is missing

    rail = sides.rail(number)
    assert (rail["serves"], bool(rail["trouble"])) == (False, True)
    assert sides.a.run("answer = peer.route(source, target).device") == f"rxe{other}"
    before = sides.moved()
    sides.check_a_transfer(seed=3)
    sides.check_a_transfer(seed=4, call="write(source, target")
    assert sides.moved()[number] == before[number]
    if number == 1:
        assert sides.a.run('answer = peer.fetch_add(peer["counter"][0], 5).wait()') == 0
    else:  # atomics of the other device are not atomic with those of the first
        with pytest.raises(RemoteError, match=r"RouteUnavailable.*rxe0"):
            sides.a.run("""
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    try:  # waits for the first repair, which fails
                        peer.fetch_add(peer["counter"][0], 5).wait(60)
                    except zh.VerbsError:
                        pass
            """)

    wire.heal()
    sides.wait_until_all_serve()
    before = sides.moved()
    sides.check_a_transfer(seed=5)
    assert_equal_shares(before, sides.moved(), sides.a.run("answer = nbytes"))
    # What was cut off may have been carried out.
    assert sides.a.run('answer = peer.fetch_add(peer["counter"][0], 1).wait()') % 5 == 0


def test_a_device_of_two_is_removed_in_mid_transfer(sides):
    """The kernel waits until nobody has it open; meanwhile the other device carries everything."""
    sides.connect(control=0)
    sides.check_a_transfer(seed=1)
    sides.a.begin("""
        failures = []
        rail_of = lambda: peer.stats()["rails"][1]
        end = time.monotonic() + 120
        count = 0
        while rail_of()["serves"]:
            assert time.monotonic() < end, peer.stats()
            try:
                peer.write_many(pairs, timeout=60).wait(60)
            except zh.VerbsError as error:
                failures.append([error.effect, str(error)])
            count += 1
            if count == 2:
                say("streaming")
        answer = failures
    """)
    sides.a.heard("streaming", 60)
    guest = sides.pair.a
    removing = guest.start(["rdma", "link", "delete", "rxe1"])
    for effect, words in sides.a.finish(120):
        assert effect in ("some", "all"), words
        assert "rxe1 is being removed" in words
    assert "rxe1 is being removed" in str(sides.rail(1)["trouble"])
    assert sides.a.run("answer = peer.route(source, target).device") == "rxe0"
    before = sides.moved()
    sides.check_a_transfer(seed=2)
    sides.check_a_transfer(seed=3, call="write(source, target")
    assert sides.moved()[1] == before[1]
    assert sides.a.run('answer = peer.fetch_add(peer["counter"][0], 5).wait()') == 0

    sides.a.run("ep.close(); del ep, peer, inbox, counter, source, target, pairs")
    removing.check(60)
    guest.run(["rdma", "link", "add", "rxe1", "type", "rxe", "netdev", "eth1"], timeout=60)
    sides.connect(control=0)
    before = sides.moved()
    sides.check_a_transfer(seed=4)
    assert_equal_shares(before, sides.moved(), sides.a.run("answer = nbytes"))
