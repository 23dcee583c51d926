"""The doctor on the kernel's limits and on zerohop's own software: every state of every check."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from doctor_host import ROOT_CAPABILITIES, host_of
from machine import Machine, dgx, plain, software, virtual
from zerohop.doctor import limits
from zerohop.doctor import software as own


@pytest.mark.parametrize(
    ("release", "state"),
    [
        ("6.18.44-fc", "ok"),
        ("5.12.0", "ok"),
        ("5.10.0-32-amd64", "warn"),
        ("4.18.0-553.el8", "warn"),
        ("strange", "absent"),
    ],
)
def test_kernel(tmp_path: Path, release: str, state: str) -> None:
    machine = plain(tmp_path)
    machine.write("proc/sys/kernel/osrelease", release)
    finding = limits.kernel(host_of(machine))
    assert finding.state == state
    assert release in finding.evidence


@pytest.mark.parametrize(
    ("build", "limit", "capabilities", "state"),
    [
        (software, None, "", "ok"),
        (software, 64 << 10, ROOT_CAPABILITIES, "ok"),
        (software, 8 << 20, "", "warn"),
        (software, 64 << 10, "", "fail"),
        (plain, 64 << 10, "", "ok"),
    ],
)
def test_memlock(
    tmp_path: Path,
    build: Callable[[Path], Machine],
    limit: int | None,
    capabilities: str,
    state: str,
) -> None:
    machine = build(tmp_path)
    machine.write("proc/self/status", f"Name:\tpython\n{capabilities}")
    finding = limits.memlock(host_of(machine, memlock=limit))
    assert finding.state == state
    assert ("ulimit -l unlimited" in finding.fix) == (state in ("warn", "fail"))
    if state == "warn":
        assert "room for 8 Peers" in finding.evidence


@pytest.mark.parametrize(
    ("limit", "used", "state"),
    [(65530, 300, "ok"), (65530, 60000, "warn"), (1000, 300, "warn"), (None, 300, "absent")],
)
def test_max_map_count(tmp_path: Path, limit: int | None, used: int, state: str) -> None:
    machine = plain(tmp_path)
    machine.write("proc/self/maps", "\n".join(["7f00-7f01 r--p"] * used))
    if limit is not None:
        machine.write("proc/sys/vm/max_map_count", limit)
    assert limits.max_map_count(host_of(machine)).state == state


@pytest.mark.parametrize(
    ("nbytes", "state"), [(1 << 34, "ok"), (64 << 20, "warn"), (0, "absent"), (None, "absent")]
)
def test_shm(tmp_path: Path, nbytes: int | None, state: str) -> None:
    finding = limits.shm(host_of(plain(tmp_path), size=nbytes))
    assert finding.state == state
    assert ("--shm-size" in finding.fix) == (state == "warn")


@pytest.mark.parametrize(
    ("build", "on", "state"),
    [(dgx, 0, "ok"), (dgx, 1, "warn"), (dgx, None, "absent"), (virtual, 1, "absent")],
)
def test_numa_balancing(
    tmp_path: Path, build: Callable[[Path], Machine], on: int | None, state: str
) -> None:
    machine = build(tmp_path)
    if on is not None:
        machine.write("proc/sys/kernel/numa_balancing", on)
    assert limits.numa_balancing(host_of(machine)).state == state


@pytest.mark.parametrize(
    ("answer", "state"), [((True, "64 KiB"), "ok"), ((False, "refused"), "fail")]
)
def test_soft0(tmp_path: Path, answer: tuple[bool, str], state: str) -> None:
    finding = own.soft0(host_of(plain(tmp_path), loopback=answer))
    assert (finding.state, finding.evidence) == (state, answer[1])
    assert bool(finding.fix) == (state == "fail")


@pytest.mark.parametrize(
    ("path", "state"),
    [
        ("/usr/lib/libsodium.so.23.3.0", "ok"),
        ("/site-packages/zerohop.libs/libsodium-1a2b3c.so.23", "ok"),
        ("/usr/lib/libc.so.6", "fail"),
    ],
)
def test_libsodium(tmp_path: Path, path: str, state: str) -> None:
    machine = plain(tmp_path)
    machine.write("proc/self/maps", f"7f00-7f01 r-xp 00000000 fe:01 4711   {path}")
    finding = own.libsodium(host_of(machine))
    assert finding.state == state
    assert finding.evidence == (path if state == "ok" else "not loaded")


@pytest.mark.parametrize(("notes", "state"), [((), "ok"), (("NVLinks are unknown: x",), "warn")])
def test_nvml(tmp_path: Path, notes: tuple[str, ...], state: str) -> None:
    host = host_of(virtual(tmp_path))
    host.topology = dataclasses.replace(host.topology, notes=notes)
    assert own.nvml(host).state == state


@pytest.mark.parametrize(
    ("built_in", "gpus", "state"),
    [(True, False, "ok"), (True, True, "ok"), (False, False, "absent"), (False, True, "warn")],
)
def test_gpu_kernels(tmp_path: Path, built_in: bool, gpus: bool, state: str) -> None:
    machine = virtual(tmp_path) if gpus else plain(tmp_path)
    finding = own.gpu_kernels(host_of(machine, kernels=built_in))
    assert finding.state == state
    assert ("nvidia-cuda-nvcc" in finding.fix) == (state == "warn")


@pytest.mark.parametrize(("built_in", "state"), [(True, "ok"), (False, "absent")])
def test_nvtx(tmp_path: Path, built_in: bool, state: str) -> None:
    assert own.nvtx(host_of(plain(tmp_path), nvtx=built_in)).state == state


def test_nvml_without_gpus(tmp_path: Path) -> None:
    assert own.nvml(host_of(plain(tmp_path))).state == "absent"


@pytest.mark.parametrize(
    ("source", "state"),
    [("tsc", "ok"), ("kvm-clock", "ok"), (None, "ok"), ("hpet", "warn"), ("acpi_pm", "warn")],
)
def test_clocks(tmp_path: Path, source: str | None, state: str) -> None:
    machine = plain(tmp_path)
    if source:
        where = "sys/devices/system/clocksource/clocksource0"
        machine.write(f"{where}/current_clocksource", source)
    finding = limits.clocks(host_of(machine))
    assert finding.state == state
    assert finding.evidence.startswith("no clock synchronisation between hosts is needed")
    assert (source or "") in finding.evidence


def test_how_many_numa_nodes_is_said_or_not_known(tmp_path: Path) -> None:
    assert limits.numa_balancing(host_of(plain(tmp_path / "one"))).evidence == "1 NUMA node"
    none = host_of(Machine(tmp_path / "none"))
    assert limits.numa_balancing(none).evidence == "NUMA nodes not known"
