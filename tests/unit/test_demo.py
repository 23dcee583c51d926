"""The demo: numerics that do not depend on the split, checks that can fail, and the job as a whole."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.link import until
from support.patience import patient
from zerohop import demo
from zerohop.demo import heat, model
from zerohop.demo.heat import Strip
from zerohop.demo.heat_job import HeatResult
from zerohop.demo.job import Job, RankResult, work
from zerohop.demo.model import ModelResult
from zerohop.demo.report import checks
from zerohop.local import RankFailed, Ranks


def stepped_in_strips(
    size: int, total: int, columns: int, steps: int, stale: bool = False
) -> np.ndarray:
    """The grid stepped as `size` ranks would, in one process; `stale` forgets one halo once."""
    strips = [Strip.of_rank(rank, size, total, columns) for rank in range(size)]
    grids = [[np.zeros(strip.shape, np.float32) for strip in strips] for _ in range(2)]
    for strip, grid in zip(strips, grids[0], strict=True):
        heat.fill_initial(grid, strip)
    for step in range(steps):
        source, target = grids[step % 2], grids[(step + 1) % 2]
        for strip, old, new in zip(strips, source, target, strict=True):
            heat.step_rows(old, new, 1, strip.rows + 1)
        for rank in range(size - 1):
            target[rank + 1][0] = target[rank][-2]
            if not (stale and rank == 0 and step == steps - 2):
                target[rank][-1] = target[rank + 1][1]
    return np.concatenate([grid[1:-1] for grid in grids[steps % 2]])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_split_grid_equals_the_reference_in_every_bit(size: int) -> None:
    whole = heat.reference(61, 47, 9)
    split = stepped_in_strips(size, 61, 47, 9)
    assert heat.differing_cells(split, whole[1:-1]) == 0


def test_one_stale_halo_is_noticed() -> None:
    whole = heat.reference(61, 47, 9)
    split = stepped_in_strips(2, 61, 47, 9, stale=True)
    assert heat.differing_cells(split, whole[1:-1]) > 40


def test_blocks_do_not_change_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = heat.reference(40, 33, 5)
    monkeypatch.setattr(heat, "BLOCK_CELLS", 100)
    assert heat.differing_cells(whole, heat.reference(40, 33, 5)) == 0


def test_heat_flows_out_of_the_cold_edges() -> None:
    sums = [float(heat.reference(32, 32, steps).sum(dtype=np.float64)) for steps in (0, 10, 20)]
    assert sums[0] > sums[1] > sums[2] > 0


def test_cells_differ_when_any_bit_does() -> None:
    zeros = np.zeros((3, 3), np.float32)
    other = zeros.copy()
    other[1, 1] = -0.0
    assert heat.differing_cells(zeros, other) == 1


def test_strips_cover_every_row_once() -> None:
    strips = [Strip.of_rank(rank, 7, 100, 4) for rank in range(7)]
    rows = [row for strip in strips for row in range(strip.first, strip.first + strip.rows)]
    assert rows == list(range(100))


def test_numpy_stands_in_with_the_names_and_shapes_of_the_torch_model() -> None:
    state = model.torch_state_dict(device="meta")
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == model.names_and_shapes()
    assert model.model_nbytes() >= 300 << 20


def test_digest_sees_names_shapes_and_bits() -> None:
    array = np.arange(6, dtype=np.float32)
    flipped = array.copy()
    flipped.view(np.uint8)[-1] ^= 1
    variants = [{"a": array}, {"b": array}, {"a": array.reshape(2, 3)}, {"a": flipped}]
    assert len({model.digest(variant) for variant in variants}) == 4
    assert model.digest({"a": array, "b": flipped}) == model.digest({"b": flipped, "a": array})


def test_default_grid_is_cut_to_the_memory_there_is() -> None:
    options = demo.Options(ranks=2)
    plenty = demo.choose_grid(options, 64 << 30, torch=True)
    little = demo.choose_grid(options, 2 << 30, torch=True)
    assert plenty == demo.DEFAULT_GRID_NBYTES
    assert demo.SMALLEST_GRID_NBYTES < little < plenty
    assert demo.needed_memory(little, 2, torch=True) <= 0.8 * (2 << 30)


@pytest.mark.parametrize("grid_nbytes", [None, 400_000_000])
def test_too_little_memory_says_what_is_needed(grid_nbytes: int | None) -> None:
    options = demo.Options(ranks=4, grid_nbytes=grid_nbytes)
    with pytest.raises(demo.DoesNotFit, match=r"4 ranks need .* GB of memory but only .* MB"):
        demo.choose_grid(options, 1 << 30, torch=True)


def results_of(differing: int = 0, digest: str = "ab") -> list[RankResult]:
    published = ModelResult("ab", tensors=76, nbytes=100, source="NumPy")
    copy = replace(published, digest=digest)
    return [
        RankResult("soft0", HeatResult(differing=differing), published),
        RankResult("soft0", HeatResult(), published),
        RankResult("soft0", HeatResult(), copy),
    ]


@pytest.mark.parametrize(
    ("results", "held"),
    [
        (results_of(), [True, True]),
        (results_of(differing=1), [False, True]),
        (results_of(digest="cd"), [True, False]),
    ],
)
def test_every_check_can_break(results: list[RankResult], held: list[bool]) -> None:
    assert [ok for _, ok, _ in checks(Job(3, 100, 5, None), results)] == held


def zerohop_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zerohop", "demo", "--verbs", "soft0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.timeout(300)
def test_the_whole_demo_holds() -> None:
    done = zerohop_demo("--ranks", "3", "--size", "4", "--steps", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("held") == 2
    assert "BROKEN" not in done.stdout
    assert "host over soft0" in done.stdout


def test_an_unknown_device_ends_the_demo_with_its_reason() -> None:
    done = zerohop_demo("--verbs", "mlx5_77", "--size", "4")
    assert done.returncode == 1
    assert "zerohop demo stopped: rank" in done.stdout
    assert "mlx5_77" in done.stdout


def test_a_grid_too_small_for_its_ranks_is_refused() -> None:
    done = zerohop_demo("--ranks", "64", "--size", "0.01")
    assert done.returncode == 1
    assert "too small for 64 ranks" in done.stdout


def test_a_rank_killed_between_two_steps_ends_the_job() -> None:
    def kill_second(rank: int, report: tuple[str, int, int]) -> None:
        if report[:2] == ("heat equation", 1) and rank == 0:
            os.kill(ranks.pids[1], signal.SIGKILL)

    job = Job(ranks=2, side=200, steps=10_000_000, device="soft0")
    with (
        Ranks(work, 2, job, on_report=kill_second) as ranks,
        pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL"),
    ):
        ranks.results()


@pytest.mark.timeout(patient(120))
def test_ctrl_c_ends_the_demo_in_one_line() -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "zerohop", "demo", "--verbs=soft0", "--size=4"]
    with subprocess.Popen(
        [*command, "--steps=10000000"], stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            until(lambda: len(children.read_text().split()) > 1, "ranks are there", 60)
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=patient(60))
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert said.splitlines() == ["zerohop demo: interrupted"]
