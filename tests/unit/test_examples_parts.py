"""The parts of zerohop.examples: numbers that are exact, places that fit together, kernels that compile."""

import io
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.nvcc import compiles
from zerohop.examples import place
from zerohop.examples.failures import KernelFailed
from zerohop.examples.job import Ticker
from zerohop.examples.matvec import lanes, plan, problem
from zerohop.examples.matvec.plan import BUFFERS, MOST_BLOCKS, Plan
from zerohop.examples.matvec.problem import NBYTES, SETS, SIDE, Problem, first_wrong, poison
from zerohop.examples.matvec.rank import SOURCE as MATVEC
from zerohop.examples.matvec.rank import Finding
from zerohop.examples.matvec.report import print_findings
from zerohop.examples.stencil import host
from zerohop.examples.stencil import kernel as stencil_kernel
from zerohop.examples.stencil.plan import LEFT
from zerohop.examples.stencil.plan import Plan as StencilPlan
from zerohop.examples.stencil.rank import SOURCE as STENCIL

SPLITS = [(480, 1, [15]), (15360, 1, [128]), (97, 3, [3, 4, 32]), (7, 7, [1] * 7)]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("source", [MATVEC, STENCIL], ids=lambda path: path.stem)
def test_the_kernels_compile(tmp_path: Path, source: Path, architecture: str) -> None:
    compiles(source, architecture, tmp_path, f"-I{place.HERE}")


def constants(source: Path) -> dict[str, int]:
    found = re.findall(r"^constexpr \w+ (k\w+) = (\w+?)u?;", source.read_text(), re.MULTILINE)
    return {name: int(value, 0) for name, value in found}


def test_kernels_and_their_callers_have_the_same_constants() -> None:
    known = constants(MATVEC)
    assert (known["kSide"], known["kTurns"], known["kStop"]) == (SIDE, BUFFERS, plan.STOP)
    rows = constants(STENCIL)["kTileRows"]
    assert rows == host.TILE_ROWS == stencil_kernel._TILE_ROWS
    texts = MATVEC.read_text() + STENCIL.read_text()
    for name, dtype in {
        "Lane": lanes._LANE,
        "Layout": lanes._LAYOUT,
        "Field": stencil_kernel._FIELD,
        "Side": stencil_kernel._SIDE,
    }.items():
        assert f"static_assert(sizeof({name}) == {dtype.itemsize}, " in texts


# --- matvec: numbers ---


def test_products_are_exact_in_every_order() -> None:
    made = Problem(50)
    expected = made.expected()
    matrices, vectors = made.matrices(0, 50), made.vectors()
    assert expected.shape == (SETS, 50, SIDE)
    terms = matrices[None] * vectors[:, :, None, :]
    order = np.random.default_rng(3).permutation(SIDE)
    for shuffled in (terms, terms[..., ::-1], terms[..., order]):
        assert (np.add.accumulate(shuffled, axis=-1)[..., -1] == expected).all()
    exact = np.einsum("nij,snj->sni", matrices.astype(np.float64), vectors.astype(np.float64))
    assert (exact == expected).all()
    assert np.unique(expected).size > 1000


def test_sets_differ_in_every_vector() -> None:
    vectors = Problem(480).vectors()
    for number in range(1, SETS):
        assert (vectors[0] != vectors[number]).any(axis=1).all()
    assert SETS % BUFFERS  # what a buffer had before is of another set


def test_the_first_wrong_element_is_named() -> None:
    expected = Problem(4).expected()[0]
    products = expected.copy()
    assert first_wrong(products, expected, 9) is None
    products[2, 7] += 1
    products[3, 1] = -products[3, 1]
    text = first_wrong(products, expected, 9)
    assert text is not None
    assert text.startswith("batch 9: element 7 of the product of vector 2 is ")
    assert text.endswith("of 128 elements 2 are wrong")
    poison(products)
    assert "128 are wrong" in str(first_wrong(products, expected, 9))


# --- matvec: places ---


def overlap(ranges: list[range]) -> bool:
    ordered = sorted(ranges, key=lambda each: each.start)
    return any(a.stop > b.start for a, b in itertools.pairwise(ordered))


@pytest.mark.parametrize(("batch", "servers", "blocks"), SPLITS)
def test_arrays_do_not_overlap(batch: int, servers: int, blocks: list[int]) -> None:
    made = Plan(batch, servers)
    client = [range(at, at + made.batch_nbytes) for at in map(made.vectors_at, range(SETS))]
    client += [range(at, at + made.batch_nbytes) for at in map(made.products_at, range(made.lap))]
    assert not overlap(client)
    assert max(each.stop for each in client) <= made.client_nbytes
    sizes = made.buffer_nbytes
    server = [range(at, at + sizes) for at in map(made.buffer_at, range(BUFFERS))]
    server += [range(at, at + sizes) for at in map(made.answer_at, range(BUFFERS))]
    assert not overlap(server)
    assert max(each.stop for each in server) <= made.server_nbytes
    assert max(len(made.share(server)) * NBYTES for server in range(servers)) <= sizes


@pytest.mark.parametrize(("batch", "servers", "blocks"), SPLITS)
def test_blocks_of_both_sides_fit_together(batch: int, servers: int, blocks: list[int]) -> None:
    """What a block sends and where, is what one block over there awaits, and the other way round."""
    made, slots = Plan(batch, servers), range(20000, 20000 + Plan(batch, servers).notifications)
    client = lanes.client_lanes(made, slots, [7 + server for server in range(servers)], blocks)
    assert [
        word for lane in client for word in range(lane["first"], lane["first"] + lane["count"])
    ] == (list(range(batch)))
    begin = 0
    for server, count in enumerate(blocks):
        here, begin = client[begin : begin + count], begin + count
        there = lanes.server_lanes(made, slots, server, 99, count)
        assert (here["queue"] == 7 + server).all()
        assert (there["queue"] == 99).all()
        for ours, theirs in (("first", "first_there"), ("slot", "slot_there"), ("count", "count")):
            assert here[ours].tolist() == there[theirs].tolist()
            assert here[theirs].tolist() == there[ours].tolist()
        assert len(set(there["slot"])) == count
    assert len(set(client["slot"])) == sum(blocks)
    told = {slots[made.blocks_slot(server)] for server in range(servers)}
    taken = {slot + turn for slot in client["slot"] for turn in range(BUFFERS)}
    assert told.isdisjoint(taken)
    assert max(told | taken) < slots.stop


def test_a_lane_of_the_client_is_read_by_the_kernel_as_it_is_packed() -> None:
    [lane] = lanes.client_lanes(Plan(16, 1), range(500, 9000), [1 << 40], [1])
    assert np.frombuffer(lane.tobytes(), np.uint32).tolist() == [0, 256, 0, 0, 16, 500, 500, 0]
    layout = np.frombuffer(lanes.layout_of(Plan(16, 1)).tobytes(), np.uint64)
    assert layout[:3].tolist() == [2048, 2048, SETS * 2048]


def test_the_largest_batch_has_slots_for_all_blocks() -> None:
    made = Plan(1 << 16, 1)
    last = made.slot(0, 1, MOST_BLOCKS - 1)
    assert last < made.blocks_slot(0) < made.notifications


# --- stencil: places ---


def test_rows_begin_in_lines_of_128_bytes() -> None:
    for side in (1, 30, 31, 32, 2048):
        made = StencilPlan(side, 1)
        assert made.pitch >= LEFT + side + 2
        assert all(made.cells_at(0, step, row) % 128 == 0 for step in (0, 1) for row in (0, 1))


def test_halos_land_in_the_frames_of_the_neighbours() -> None:
    made = StencilPlan(61, 3)
    for rank in range(3):
        for side in made.sides(rank):
            [back] = [each for each in made.sides(side.rank) if each.rank == rank]
            assert (side.slot, side.slot_there) == (back.slot_there, back.slot)
            frame = side.frame_there
            assert frame in (0, made.strip(side.rank).rows + 1)
            edge = made.strip(rank).first + side.edge - 1  # of the whole grid
            assert edge == made.strip(side.rank).first + frame - 1
    assert [len(made.sides(rank)) for rank in range(3)] == [1, 2, 1]


# --- what both share ---


class FakeEvent:
    def __init__(self, looks: int) -> None:
        self._looks = looks

    @property
    def done(self) -> bool:
        self._looks -= 1
        return self._looks < 0


class FakeStream:
    def record(self) -> FakeEvent:
        return FakeEvent(3)


class FakeGpu(place.Gpu):
    """Without CuPy, and with a kernel that ends at the fourth look."""

    def __init__(self) -> None:
        self.device, self.stream = "cuda:5", FakeStream()

    def to_host(self, array: np.ndarray) -> np.ndarray:
        return array


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (1, "block 3 waited in vain for 10 s, in round 17"),
        (6, "block 3 found that no peer is left that could notify, in round 17"),
        (100, "block 3 was notified of another round"),
        (55, "block 3 ended with status 55"),
    ],
)
def test_why_a_kernel_ended_is_told_in_words(status: int, words: str) -> None:
    looks: list[int] = []
    gpu = FakeGpu()
    gpu.await_kernel("the kernel", np.array([0, 3, 17, 9], np.uint32), lambda: looks.append(1))
    assert len(looks) == 3
    with pytest.raises(KernelFailed, match=f"the kernel on cuda:5: {words}"):
        gpu.await_kernel("the kernel", np.array([status, 3, 17, 9], np.uint32))


def test_a_long_job_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("zerohop.examples.job.time.monotonic", lambda: now[0])
    ticker = Ticker("matvec")
    for number in range(50):
        now[0] += 0.125
        ticker("batches", number, 50)
    said = capsys.readouterr().err.splitlines()
    assert said == [f"matvec: batches, {number} of 50" for number in (15, 31, 47)]


def test_ways_are_compared_and_targets_judged() -> None:
    findings = [
        Finding(480, "host", "cuda:0", "p2p", 40e-6, 10_000.0, 5),
        Finding(480, "kernel", "cuda:0", "p2p", 8e-6, 45_000.0, 5),
        Finding(15360, "host", "cuda:0", "p2p", 60e-6, 20_000.0, 5),
        Finding(15360, "kernel", "cuda:0", "p2p", 70e-6, 19_000.0, 5, ["batch 2: it is wrong"]),
    ]
    console = Console(width=120, record=True, file=io.StringIO())
    print_findings(findings, console)
    text = console.export_text()
    assert "Target at 480, kernel/host of 3 at least: met." in text
    assert "Target at 15360, kernel/host of 1 at least: missed." in text
    assert "4.50" in text
    assert "WRONG, by kernel, 1 of 5 batches; the first is batch 2: it is wrong." in text
    assert "bit for bit" not in text


def test_problems_of_two_ranks_are_the_same() -> None:
    first, second = Problem(9), Problem(9)
    assert (first.matrices(0, 9) == second.matrices(0, 9)).all()
    assert (first.matrices(3, 5) == second.matrices(0, 9)[3:5]).all()
    assert problem.SIDE == 32
