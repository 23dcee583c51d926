"""The programs of zerohop.examples that have two ranks, on the CPU: what they tell, and that what is wrong is noticed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from click.testing import CliRunner
from support.examples import example, rows_of
from support.pairs import MAINS, invoke, said
from support.ranks import Job
from zerohop.examples import job
from zerohop.examples.kv_cache import cache as kv_cache_cache
from zerohop.examples.kv_cache import rank as kv_cache_rank
from zerohop.examples.kv_cache.plan import Plan
from zerohop.examples.kv_cache.prefill import Prefill
from zerohop.examples.osu import loops as osu_loops
from zerohop.examples.osu import program as osu
from zerohop.examples.osu.pair import Pair
from zerohop.examples.osu.plan import WINDOW
from zerohop.examples.osu.plan import Plan as OsuPlan


@pytest.fixture(autouse=True)
def verbs(monkeypatch):
    """The device of all ranks, in whatever process they are."""
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")


@pytest.fixture
def route(verbs, device, monkeypatch):
    """For cases in which it matters how bytes go."""
    monkeypatch.setenv("ZEROHOP_DEVICE", device)


@pytest.fixture
def threads(tmp_path, monkeypatch):
    """The ranks are threads of this process, so that a case can spoil something."""

    def run(name, work, spec, ranks):
        in_threads = Job("thread", tmp_path / "job", "soft0")
        return in_threads(work, ranks, spec, lambda what, done, total: None)[0]

    monkeypatch.setattr(job, "run", run)


# --- kv_cache ---


def test_every_block_is_right(route, tmp_path):
    file = tmp_path / "rows.json"
    shape = ["--requests=70", "--layers=5", "--blocks=100", "--block-bytes=1000"]
    done = example("kv_cache", *shape, "--device=cpu", f"--json={file}")
    assert done.returncode == 0, done.stderr
    assert "Every block is what prefill computed, bit for bit." in done.stdout
    rows = rows_of(file)
    of = {metric: rows["5 x 100", "host", metric] for metric in ("requests", "rate", "p50", "p99")}
    plan = Plan(70, 5, 100, 1000)
    nbytes = sum(plan.nbytes(request) for lap in plan.laps() for request in lap)
    assert of["rate"] / of["requests"] == pytest.approx(nbytes / 70)
    assert 0 < of["p50"] <= of["p99"]
    assert rows["5 x 100", "host", "wrong"] == 0


def test_one_block_for_each_request_is_enough():
    done = example("kv_cache", "--requests=9", "--layers=1", "--blocks=1", "--block-bytes=4")
    assert done.returncode == 0, done.stderr


def test_laps_have_all_requests_and_each_block_once():
    plan = Plan(100, 3, 64, 8)
    laps = list(plan.laps())
    assert [request.number for lap in laps for request in lap] == list(range(100))
    assert len(laps) > 2
    for lap in laps:
        wanted = np.concatenate([request.wanted for request in lap])
        assert len(set(wanted.tolist())) == len(wanted)
        assert wanted.max() < 64
    for request in itertools.chain(*laps):
        assert 1 <= len(request.computed) == len(request.wanted) <= plan.longest == 4
        assert request.computed.tolist() == plan.table(request.number).tolist()


def test_rows_of_a_cache_have_no_word_in_common_with_each_other():
    words = kv_cache_cache.computed(np.arange(200), 50)
    for column in words.T:
        assert len(set(column.tolist())) == 200
    for row in words:
        assert len(set(row.tolist())) == 50


@pytest.mark.parametrize("name", MAINS)
def test_what_is_not_spoilt_is_right(threads, name):
    done = invoke(name)
    assert done.exit_code == 0, done.output


class Spoiler:
    """A Peer whose tenth write of pages is spoilt: eight come before it counts."""

    def __init__(self, peer, spoil):
        self._peer, self._spoil = peer, spoil
        self._count = itertools.count(1)

    def recv(self, *arguments, **options):
        return self._peer.recv(*arguments, **options)

    def write_pages(self, here, there, rows, wanted, notify):
        if next(self._count) == 10:
            rows, wanted, notify = self._spoil(rows, wanted, notify)
        return self._peer.write_pages(here, there, rows, wanted, notify=notify)


@pytest.fixture
def spoilt(threads, monkeypatch):
    """Makes the prefill side write something else."""

    def by(spoil):
        monkeypatch.setattr(
            kv_cache_rank,
            "Prefill",
            lambda decode, plan, here, there: Prefill(Spoiler(decode, spoil), plan, here, there),
        )

    return by


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows, wanted, notify: ((rows + 1) % 120, wanted, notify),
        lambda rows, wanted, notify: (rows[:-1], wanted[:-1], notify),
        lambda rows, wanted, notify: (rows, (wanted + 40) % 120, notify),
    ],
    ids=["another block", "one is missing", "another layer"],
)
def test_one_wrong_block_is_noticed(spoilt, spoil):
    spoilt(spoil)
    done = invoke("kv_cache")
    assert done.exit_code == 1, done.output
    assert "WRONG, 1 of 20 requests; the first is word 0 of block " in said(done)
    assert "bit for bit" not in said(done)


def test_a_notification_of_another_request_is_noticed(spoilt):
    spoilt(lambda rows, wanted, notify: (rows, wanted, (notify[0], notify[1] + 3)))
    done = invoke("kv_cache")
    assert "is due" in str(done.exception)


# --- osu ---


@pytest.mark.parametrize(
    ("test", "column"), [("latency", "Latency (us)"), ("bw", "Bandwidth (MB/s)")]
)
def test_the_table_has_the_form_of_osu(route, tmp_path, test, column):
    file = tmp_path / "rows.json"
    arguments = [f"--test={test}", "-m", "1:65536", "-i", "4", "--device=cpu", f"--json={file}"]
    done = example("osu", *arguments)
    assert done.returncode == 0, done.stderr
    head = f"# Size{column.rjust(22)}"
    lines = done.stdout.splitlines()
    assert lines[2] == head
    assert len(head) == 28
    assert lines[-1].endswith("bit for bit.")
    figures = [line for line in lines if not line.startswith("#")]
    assert [int(line[:10]) for line in figures] == [1 << power for power in range(17)]
    rows = rows_of(file)
    for line in figures:
        assert len(line) == 28
        size, value = line.split()
        metric, scale = ("latency", 1e6) if test == "latency" else ("rate", 1e-6)
        assert value == f"{rows[f'{test} {size}', 'host', metric] * scale:.2f}"
        assert rows[f"{test} {size}", "host", metric] > 0


@pytest.mark.parametrize(
    ("test", "expected"), [("latency", 0.5 / 10), ("bw", WINDOW * 256 * 10 / 0.5)]
)
def test_figures_are_of_one_way_and_of_all_writes(threads, monkeypatch, tmp_path, test, expected):
    """Of loops that say that 10 turns took a second."""
    right = osu_loops.LOOPS[test]

    def loop(pair, nbytes, times):
        right(pair, nbytes, times)
        return 1.0 if test == "latency" else 0.5

    monkeypatch.setitem(osu_loops.LOOPS, test, loop)
    file = tmp_path / "rows.json"
    arguments = [f"--test={test}", "-m", "256:256", "-i", "10", f"--json={file}"]
    assert CliRunner().invoke(osu.main, [*arguments, "--device=cpu"]).exit_code == 0
    assert list(rows_of(file).values()) == [pytest.approx(expected)]


def test_writes_of_a_window_have_places_of_their_own():
    plan = OsuPlan("bw", 1, 64 << 10, None)
    places = [(place.start, place.stop) for place in plan.places(1 << 10)]
    assert places == [(k << 10, (k + 1) << 10) for k in range(WINDOW)]
    assert {(place.start, place.stop) for place in plan.places(32 << 10)} == {
        (0, 32 << 10),
        (32 << 10, 64 << 10),
    }
    assert len(plan.places(64 << 10)) == WINDOW
    assert OsuPlan("latency", 3, 25, None).sizes == [3, 6, 12, 24]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("turn", [0, 2, 3])
def test_one_wrong_byte_of_a_ping_pong_is_noticed(threads, monkeypatch, rank, turn):
    prepare = Pair.prepare

    def spoilt(self, nbytes, now):
        prepare(self, nbytes, now)
        if (self.world.rank, nbytes, now) == (rank, 16, turn):
            sent = self._arrays.view(self._outbox)
            sent[5] ^= 1

    monkeypatch.setattr(Pair, "prepare", spoilt)
    done = invoke("osu")
    assert done.exit_code == 1, done.output
    assert f"# WRONG: of 16 bytes to rank {1 - rank}, byte 5 of write 0 is " in done.output
    assert "; 1 of 16 are wrong." in done.output
    assert "bit for bit" not in done.output


def test_a_write_of_a_window_that_never_comes_is_noticed(threads, monkeypatch):
    ends = Pair.ends

    def without_one(self, nbytes):
        every = ends(self, nbytes)
        return [*every[:20], *every[21:]] if nbytes == 4 else every

    monkeypatch.setattr(Pair, "ends", without_one)
    done = invoke("osu", "--test=bw")
    assert done.exit_code == 1, done.output
    assert "# WRONG: of 4 bytes to rank 1, byte 0 of write 20 is " in done.output
    assert "; 4 of 256 are wrong." in done.output


def test_a_notification_of_another_turn_is_noticed(threads, monkeypatch):
    right = Pair.next_note

    def note(self):
        slot, value = right(self)
        return slot, value + (self.world.rank == 1 and value == 7)

    monkeypatch.setattr(Pair, "next_note", note)
    assert "is due" in str(invoke("osu").exception)
