"""What lies between two GPUs, as the route of a p2p transfer says it."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_topology_nvlink import ADDRESSES, FakeNvml, look
from zerohop.topology import between as module
from zerohop.topology.between import describe

NEAR, FAR, THIRD = ADDRESSES
SWITCHED: dict[str, list[str | None]] = {NEAR: ["?"] * 18, FAR: ["?"] * 18, THIRD: []}


def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nvml: ModuleType | str, far: str) -> str:
    monkeypatch.setattr(module, "load_nvml", lambda: nvml)
    return describe(look(tmp_path, nvml), NEAR, far)


@pytest.mark.parametrize(
    ("speeds", "text"),
    [
        ([26_562, 26_562, 0], " over 18 NVLinks (about 478 GB/s each way)"),
        ([50_000, 26_562, 0], " over 18 NVLinks (about 478 GB/s each way)"),
        ([26_562, None, 0], " over 18 NVLinks"),
    ],
)
def test_nvlinks_are_counted_and_their_speed_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speeds: Any, text: str
) -> None:
    nvml = FakeNvml(SWITCHED, speeds=dict(zip(ADDRESSES, speeds, strict=True)))
    assert told(tmp_path, monkeypatch, nvml, FAR) == text
    assert not nvml.open


def test_without_links_it_is_pcie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = told(tmp_path, monkeypatch, FakeNvml(SWITCHED), THIRD)
    assert text == " over PCIe (a PCIe host bridge, that is, the CPU)"


def test_a_gpu_that_sys_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = told(tmp_path, monkeypatch, FakeNvml(SWITCHED), "0000:ff:00.0")
    assert text == " (over an unknown link: /sys does not show both GPUs)"


@pytest.mark.parametrize("broken", ["init", "handle", "fields"])
def test_a_speed_that_nvml_refuses_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    machine = look(tmp_path, FakeNvml(SWITCHED))
    monkeypatch.setattr(module, "load_nvml", lambda: FakeNvml(SWITCHED, broken))
    assert describe(machine, NEAR, FAR) == " over 18 NVLinks"
