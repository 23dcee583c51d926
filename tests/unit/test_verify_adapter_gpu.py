"""The steps of `zerohop verify --adapter` with a GPU, on memory of the host and threads in place of one."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.host_gpu import HostGpu
from support.patience import patient
from zerohop.verify.adapter import on_gpu
from zerohop.verify.adapter.runner import perform
from zerohop.verify.adapter.step import Result

STEPS = {step.name: step for step in on_gpu.STEPS.all}
WITH_MEMORY = ["gpudirect write", "gpudirect read", "spinning kernel", "gpu notifications"]
WITH_QUEUES = ["uar", "kernel queue", "second queue", "closed and reopened", "placements"]

pytestmark = pytest.mark.timeout(patient(60))


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    monkeypatch.setattr(on_gpu, "QUICK_ROUNDS", 300)


@pytest.fixture
def setup():
    """Makes a Setup with such a GPU."""
    made: list[HostGpu] = []

    def make(**options: object) -> SimpleNamespace:
        made.append(HostGpu("soft0", **options))
        return SimpleNamespace(gpu=made[-1], spec=SimpleNamespace(quick=True))

    yield make
    for each in made:
        each.close()


def run(name: str, setup: SimpleNamespace) -> Result:
    return perform(setup, STEPS[name])


@pytest.mark.parametrize("name", [*WITH_MEMORY, *WITH_QUEUES])
def test_each_passes(setup, name):
    result = run(name, setup())
    assert result.outcome == "pass", result
    assert result.figures


def test_both_ways_of_registration_are_written_and_read(setup):
    with_both = setup()
    for name in ("gpudirect write", "gpudirect read"):
        assert len(run(name, with_both).figures["by"].split()) == 2
    with_one = setup(lacks=("peermem",))
    assert len(run("gpudirect write", with_one).figures["by"].split()) == 1
    without = run("gpudirect write", setup(lacks=("peermem", "dmabuf")))
    assert without.outcome == "not possible here"
    assert without.cause == "dmabuf: no dmabuf here; peermem: no peermem here"


@pytest.mark.parametrize("place", [0, on_gpu.OFFSET, on_gpu.NBYTES - 1])
def test_one_byte_that_is_wrong_is_found_inside_and_beside(setup, place):
    def spoil(found: np.ndarray) -> None:
        found[place] ^= 0x40

    result = run("gpudirect write", setup(spoil=spoil))
    assert result.outcome == "fail"
    assert f"1 of {on_gpu.NBYTES} bytes differ, first byte {place}:" in result.cause


def test_data_that_is_older_than_its_notification_is_found(setup, monkeypatch):
    made = setup()
    write = made.gpu.peer.write

    def late(source: object, target: object, **options: object) -> object:
        """The notification of round 200 without its data."""
        if options.get("notify") == (on_gpu.SLOT, 200):
            return write(source[:0], target[:0], **options)
        return write(source, target, **options)

    monkeypatch.setattr(made.gpu.peer, "write", late, raising=False)
    monkeypatch.setattr(on_gpu, "WAIT_S", 0.2)
    result = run("gpu notifications", made)
    assert result.outcome == "fail"
    assert "in round 200 of 300 a kernel saw the notification first" in result.cause


def test_without_a_gpu_it_says_so(setup, monkeypatch):
    monkeypatch.setattr("zerohop._core.gpu_count", lambda: 0)
    result = run("gpu", setup())
    assert (result.outcome, result.cause) == ("not run", "no GPU here")
    assert "NVIDIA GPU" in result.remedy


def test_the_four_placements_are_all_told(setup):
    figures = run("placements", setup()).figures
    no = "not to be had: completions do not reach it"
    assert figures == {
        "host / host": "works", "host / gpu": no, "gpu / host": "works", "gpu / gpu": no,
    }  # fmt: skip
