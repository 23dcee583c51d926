"""NVLinks, asked of a stand-in for NVML's Python binding, and what lies between two GPUs."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import zerohop as zh
from machine import Machine
from zerohop.topology import Topology
from zerohop.topology import between as module
from zerohop.topology.between import describe

ADDRESSES = ["0000:00:04.0", "0000:00:05.0", "0000:00:06.0"]
SWITCH = "00000000:C0:00.0"


class Refusal(Exception):
    """NVMLError."""


class NotSupported(Refusal):
    """NVMLError_NotSupported."""


class InvalidArgument(Refusal):
    """NVMLError_InvalidArgument."""


class FakeNvml(ModuleType):
    """Knows for each GPU where its links lead: an address, None for one that is off, "?" for hidden."""

    NVML_NVLINK_MAX_LINKS = 18
    NVML_FEATURE_ENABLED = 1
    NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON = 90
    NVML_SUCCESS = 0
    NVMLError = Refusal
    NVMLError_NotSupported = NotSupported
    NVMLError_InvalidArgument = InvalidArgument

    def __init__(
        self,
        links: dict[str, list[str | None]],
        broken: str = "",
        speeds: dict[str, int | None] | None = None,
    ) -> None:
        super().__init__("pynvml")
        self.links = links
        self.speeds = speeds or {}  # MB/s of a link, None where NVML does not know it
        self.broken = broken
        self.open = False

    def nvmlInit(self) -> None:
        if self.broken == "init":
            raise Refusal("Driver Not Loaded")
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetHandleByPciBusId(self, address: bytes) -> list[str | None]:
        if self.broken == "handle":
            raise Refusal("GPU is lost")
        return self.links[address.decode()]

    def nvmlDeviceGetNvLinkState(self, handle: list[str | None], link: int) -> int:
        if link >= len(handle):
            raise (NotSupported if self.broken == "old" else InvalidArgument)("no such link")
        return 0 if handle[link] is None else 1

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: list[str | None], link: int) -> Any:
        if handle[link] == "?":
            raise NotSupported("hidden")
        return SimpleNamespace(busId=str(handle[link]).encode())

    def nvmlDeviceGetFieldValues(self, handle: list[str | None], fields: list[int]) -> list[Any]:
        if self.broken == "fields":
            raise Refusal("Invalid Argument")
        assert fields == [self.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON]
        [address] = [address for address, links in self.links.items() if links is handle]
        speed = self.speeds.get(address)
        value = SimpleNamespace(uiVal=speed or 0)
        return [SimpleNamespace(nvmlReturn=0 if speed is not None else 3, value=value)]


def look(root: Path, nvml: ModuleType | str) -> Topology:
    machine = Machine(root)
    machine.numa("0")
    for address in ADDRESSES:
        machine.gpu(f"0000:00 {address[8:]}")
    return zh.topology(machine.sys, machine.proc, {}, nvml)


def labels(topology: Topology) -> list[str]:
    return [topology.label(a, b) for a, b in (("GPU0", "GPU1"), ("GPU0", "GPU2"), ("GPU1", "GPU2"))]


def nvml_address(address: str) -> str:
    """As NVML writes it: a domain of eight digits, capital letters."""
    return "0000" + address.upper()


@pytest.mark.parametrize("broken", ["", "old"])
def test_direct_links(tmp_path, broken):
    a, b, c = map(nvml_address, ADDRESSES)
    links: dict[str, list[str | None]] = {
        ADDRESSES[0]: [b, b, c],
        ADDRESSES[1]: [a, a, None],
        ADDRESSES[2]: [None, a],
    }
    nvml = FakeNvml(links, broken)
    topology = look(tmp_path, nvml)
    assert labels(topology) == ["NV2", "NV1", "PHB"]
    assert topology.notes == ()
    assert not nvml.open


@pytest.mark.parametrize("far_end", [SWITCH, "?"])
def test_links_through_switches(tmp_path, far_end):
    links: dict[str, list[str | None]] = {
        ADDRESSES[0]: [far_end] * 18,
        ADDRESSES[1]: [far_end] * 16 + [None, None],
        ADDRESSES[2]: [],
    }
    assert labels(look(tmp_path, FakeNvml(links))) == ["NV16", "PHB", "PHB"]


@pytest.mark.parametrize(
    ("nvml", "sentence"),
    [
        (FakeNvml({}, "init"), "NVML does not start (Driver Not Loaded); load the NVIDIA driver"),
        (FakeNvml({}, "handle"), "NVML refused (GPU is lost)"),
    ],
)
def test_absence_is_one_sentence(tmp_path, nvml, sentence):
    topology = look(tmp_path, nvml)
    assert labels(topology) == ["PHB", "PHB", "PHB"]
    [note] = topology.notes
    assert note.startswith("NVLinks are unknown: ")
    assert note.endswith(sentence)
    assert repr(topology).endswith(note)


def test_one_gpu_needs_no_nvml(tmp_path):
    machine = Machine(tmp_path)
    machine.gpu("0000:00 04.0")
    assert zh.topology(machine.sys, machine.proc, {}, "absent").notes == ()


def test_missing_binding_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it raises ImportError
    machine = Machine(tmp_path)
    for address in ADDRESSES:
        machine.gpu(f"0000:00 {address[8:]}")
    topology = zh.topology(machine.sys, machine.proc, {})
    assert topology.notes == ("NVLinks are unknown: pip install nvidia-ml-py",)


NEAR, FAR, THIRD = ADDRESSES
SWITCHED: dict[str, list[str | None]] = {NEAR: ["?"] * 18, FAR: ["?"] * 18, THIRD: []}


def reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nvml: ModuleType | str, far: str
) -> str:
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
def test_nvlinks_are_counted_and_their_speed_added_up(tmp_path, monkeypatch, speeds, text):
    nvml = FakeNvml(SWITCHED, speeds=dict(zip(ADDRESSES, speeds, strict=True)))
    assert reported(tmp_path, monkeypatch, nvml, FAR) == text
    assert not nvml.open


def test_without_links_it_is_pcie(tmp_path, monkeypatch):
    text = reported(tmp_path, monkeypatch, FakeNvml(SWITCHED), THIRD)
    assert text == " over PCIe (a PCIe host bridge, that is, the CPU)"


def test_a_gpu_that_sys_does_not_show(tmp_path, monkeypatch):
    text = reported(tmp_path, monkeypatch, FakeNvml(SWITCHED), "0000:ff:00.0")
    assert text == " (over an unknown link: /sys does not show both GPUs)"


@pytest.mark.parametrize("broken", ["init", "handle", "fields"])
def test_a_speed_that_nvml_refuses_is_left_out(tmp_path, monkeypatch, broken):
    machine = look(tmp_path, FakeNvml(SWITCHED))
    monkeypatch.setattr(module, "load_nvml", lambda: FakeNvml(SWITCHED, broken))
    assert describe(machine, NEAR, FAR) == " over 18 NVLinks"
