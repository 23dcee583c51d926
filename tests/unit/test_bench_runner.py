"""What all commands of `zerohop bench` stand on: turns, who is left out, and the line that says why."""

import json
from io import StringIO
from typing import Any, ClassVar

import pytest
from rich.console import Console
from support.bench_players import reported
from zerohop.bench.placement import APART, FREE, PLACEMENTS, TOGETHER
from zerohop.bench.plan import FigureFailed, Options, Order, PeerFailed, Plan, Step
from zerohop.bench.progress import Watch
from zerohop.bench.rows import OURS
from zerohop.bench.runner import Entry, Suite, conduct, run_suite
from zerohop.bench.tables import over_sizes
from zerohop.bench.workers import paced
from zerohop.local import RankFailed

TABLES = (over_sizes("write", "write bandwidth"),)


class Scripted:
    """A contender that gives one value after the other, and keeps a diary with the others."""

    running: ClassVar[set[str]] = set()

    def __init__(self, name: str, diary: list[str], values: list[Any]) -> None:
        self.name = name
        self.running.clear()
        self._diary = diary
        self._values = values

    def start(self, placement: str) -> None:
        self._diary.append(f"{self.name} starts")
        self.running.add(self.name)

    def pause(self) -> None:
        self.running.discard(self.name)

    def resume(self) -> None:
        self.running.add(self.name)

    def facts(self) -> dict[str, str]:
        return {"device": "made up", "route": "by hand", "reason": "for a test", self.name: "1.0"}

    def measure(self, order: Order, seconds: float) -> dict[str, float]:
        assert self.running == {self.name}  # nobody else
        self._diary.append(f"{self.name} {order.test} {order.driver}")
        value = self._values.pop(0)
        if isinstance(value, BaseException):
            raise value
        return {"bandwidth": value}

    def finish(self) -> None:
        assert self.name in self.running
        self._diary.append(f"{self.name} finishes")

    def close(self) -> None:
        self._diary.append(f"{self.name} closes")


def suite(entries: list[Entry], turns: int = 2, **others: Any) -> Suite:
    steps = (Step("write", 8, turns), Step("read", 8, turns))
    return Suite("soft", steps, entries, TABLES, plan=Plan(seconds=1), **others)


def test_everybody_takes_turns_and_all_is_taken_twice():
    diary: list[str] = []
    ours = Scripted(OURS, diary, [5.0, 1.0, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0])
    peer = Scripted("ucx", diary, [3.0] * 8)
    made = suite([Entry(OURS, ours), Entry("ucx", peer, route="tcp", settings="A=b")])
    outcome = conduct(lambda options: made, Options())
    turns = [
        f"{name} {test} python"
        for test in ("write", "read")
        for _ in range(2)
        for name in (OURS, "ucx")
    ]
    assert diary == [
        *(f"{name} starts" for name in (OURS, "ucx")),
        *(turns + turns),
        *(f"{name} finishes" for name in (OURS, "ucx")),
        *(f"{name} closes" for name in ("ucx", OURS)),
    ]
    mine = outcome.rows[0]
    assert (mine.value, mine.turns, mine.spread, mine.unit) == (2.0, 4, 2.0, "B/s")
    assert [(r.test, r.impl, r.route, r.device, r.steady) for r in outcome.rows] == [
        (test, impl, route, device, steady)
        for test in ("write", "read")
        for impl, route, device, steady in (
            (OURS, "by hand", "made up", test == "read"),
            ("ucx", "tcp", "", True),
        )
    ]
    assert (outcome.facts["device"], outcome.facts["ucx"]) == ("made up", "1.0")
    assert outcome.facts["settings"] == {"ucx": "A=b"}


def test_what_is_set_up_at_the_first_use_is_not_timed():
    diary: list[str] = []
    player = Scripted(OURS, diary, [7.0, 1.0, 7.0, 2.0] * 2)
    made = suite([Entry(OURS, player)], turns=1, warm=True)
    outcome = conduct(lambda options: made, Options())
    assert [r.value for r in outcome.rows] == [1.0, 2.0]


def test_every_placement_is_made_ready_and_reported(monkeypatch):
    diary: list[str] = []

    def make(options: Options) -> Suite:
        value = float(PLACEMENTS.index(options.placement))
        return suite([Entry(OURS, Scripted(OURS, diary, [value] * 4))], turns=1)

    monkeypatch.setattr("zerohop.bench.placement.usable_cores", lambda: [0, 1])
    outcome = conduct(make, Options(placements=PLACEMENTS))
    assert [(r.placement, r.test, r.value) for r in outcome.rows] == [
        (place, test, float(number))
        for number, place in enumerate(PLACEMENTS)
        for test in ("write", "read")
    ]
    assert [part.placement for part in outcome.parts] == list(PLACEMENTS)


def test_on_one_core_nobody_has_a_core_each(monkeypatch):
    monkeypatch.setattr("zerohop.bench.placement.usable_cores", lambda: [0])
    made = suite([Entry(OURS, Scripted(OURS, [], [1.0] * 8))], turns=1)
    outcome = conduct(lambda options: made, Options(placements=PLACEMENTS))
    assert [part.placement for part in outcome.parts] == [TOGETHER, FREE]
    assert outcome.absences == [
        {"impl": "everybody", "test": APART, "reason": "this process may use one core"}
    ]


def test_a_peer_that_fails_is_left_out_from_there_on_and_reported(tmp_path):
    path = tmp_path / "rows.json"
    diary: list[str] = []
    refuses = Scripted("ucx", diary, [1.0, PeerFailed("no such transport"), *([1.0] * 4)])
    dies = Scripted("tcp", diary, [1.0, 1.0, RankFailed(1, "was killed")])
    entries = [Entry(OURS, Scripted(OURS, diary, [1.0] * 8))]
    entries += [Entry("ucx", refuses), Entry("tcp", dies)]
    good, text = reported(lambda _: suite(entries), Options(peers=("ucx", "tcp"), json_path=path))
    assert good
    assert "ucx write no such transport" in text
    assert "tcp everything from read on: rank 1 was killed" in text
    head, *rows = json.loads(path.read_text())
    assert len(head["not_available"]) == 2
    turns = {(r["impl"], r["test"]): r["turns"] for r in rows}
    assert turns == {
        (OURS, "write"): 4,
        (OURS, "read"): 4,
        ("ucx", "write"): 1,
        ("ucx", "read"): 4,
        ("tcp", "write"): 2,
    }
    steady = {(r["impl"], r["test"]) for r in rows if r["steady"]}
    assert steady == {(OURS, "write"), (OURS, "read"), ("ucx", "read")}
    assert "~1e-09" in text
    assert (
        "~ taken twice, with all others in between, the figure differed by more than 20%." in text
    )
    assert "write bandwidth, GB/s (ratios: zerohop / theirs); ends: free" in text


def test_a_figure_of_ours_that_fails_makes_the_run_fail_and_the_rest_is_measured():
    diary: list[str] = []
    ours = Scripted(OURS, diary, [FigureFailed("late"), *([1.0] * 4)])
    good, text = reported(lambda _: suite([Entry(OURS, ours)]), Options())
    assert not good
    assert "zerohop bench failed: write: late" in text
    assert diary.count(f"{OURS} read python") == 4


def test_ours_that_dies_ends_the_run_and_what_was_measured_is_reported(tmp_path):
    path = tmp_path / "rows.json"
    diary: list[str] = []
    ours = Scripted(OURS, diary, [1.0] * 2 + [RankFailed(0, "was killed")])
    good, text = reported(lambda _: suite([Entry(OURS, ours)]), Options(json_path=path))
    assert not good
    assert "zerohop bench failed: rank 0 was killed" in text
    assert diary[-1] == f"{OURS} closes"
    assert [row["test"] for row in json.loads(path.read_text())] == ["header", "write"]


def test_ctrl_c_ends_the_run_and_what_was_measured_is_reported(tmp_path):
    path = tmp_path / "rows.json"
    diary: list[str] = []
    ours = Scripted(OURS, diary, [1.0] * 2 + [KeyboardInterrupt()])
    console = Console(file=StringIO(), width=200)
    with pytest.raises(KeyboardInterrupt):
        run_suite(lambda _: suite([Entry(OURS, ours)]), Options(json_path=path), console)
    text = console.file.getvalue()
    assert "~1e-09" in text
    assert "Interrupted: these are the figures until then." in text
    assert diary[-1] == f"{OURS} closes"
    head, row = json.loads(path.read_text())
    assert (head["interrupted"], row["test"]) == (True, "write")


def test_an_entry_that_is_needed_ends_the_run_and_others_are_reported():
    diary: list[str] = []
    way = Entry(OURS, Scripted(OURS, diary, []), must_go="p2p", label="one way")
    rest = Entry(OURS, Scripted(OURS, diary, [1.0] * 8), needed=True)
    good, text = reported(lambda _: suite([way, rest]), Options())
    assert good
    assert "one way everything the route is by hand, not p2p: for a test" in text
    needed = Entry(OURS, Scripted(OURS, diary, []), must_go="p2p", needed=True)
    good, text = reported(lambda _: suite([needed]), Options())
    assert not good
    assert "zerohop bench failed: the route is by hand, not p2p: for a test" in text
    assert "not available" not in text


def test_what_cannot_even_be_planned_is_reported():
    def make(options: Options) -> Suite:
        raise RankFailed(0, "sees no GPU")

    assert conduct(make, Options()).failure == "rank 0 sees no GPU"


def test_a_run_is_as_long_as_is_asked_for():
    asked: list[int] = []

    def latency(order: Order) -> list[list[float]]:
        asked.append(order.times)
        return [[1e-3] * order.times, [1e-3] * order.times]

    found = paced(latency, Order("latency", "cpp", 8, 0), 1.0)
    assert asked == [4, 500]  # a round trip is both its halves
    assert found == pytest.approx({"p50": 1e-3, "p99": 1e-3, "mean": 1e-3})
    assert paced(lambda order: [0.0, 2.0], Order("write", "cpp", 8, 5), 9.0) == {"bandwidth": 20.0}
    assert paced(lambda order: [0.0, 2.0], Order("both", "cpp", 8, 5), 9.0) == {"bandwidth": 40.0}
    assert paced(lambda order: [2.0], Order("add_rate", "cpp", 8, 5), 9.0) == {"rate": 2.5}
    assert paced(lambda order: [{"one_way": 1.0}, {}], Order("x", "cpp", 8, 0), 9.0) == {
        "one_way": 1.0
    }


def watched(stream: StringIO, monkeypatch: pytest.MonkeyPatch, seconds: float) -> str:
    """What is shown while ten steps each take so long."""
    now = [100.0]
    monkeypatch.setattr("zerohop.bench.progress.time.monotonic", lambda: now[0])
    with Watch("zerohop bench soft", stream) as watch:
        watch.at("zerohop begins")
        watch.expect(10)
        for number in range(10):
            watch.at(f"write {number} B")
            now[0] += seconds
            watch.advance()
    return stream.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch):
    lines = watched(StringIO(), monkeypatch, 3.0).splitlines()
    assert lines == [
        "zerohop bench soft: 1 of 10, write 1 B, about 27 s left",
        "zerohop bench soft: 5 of 10, write 5 B, about 15 s left",
        "zerohop bench soft: 9 of 10, write 9 B, about 3 s left",
    ]
    assert "about 6.0 min left" in watched(StringIO(), monkeypatch, 40.0)
