"""The doctor on GPU memory shared between processes: every state of every check."""

from dataclasses import replace
from pathlib import Path

import pytest
from doctor_host import ROOT_CAPABILITIES, cuda_of, host_of
from machine import Machine, plain, virtual, workstation
from zerohop.doctor import sharing
from zerohop.doctor.facts import Cuda


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return virtual(tmp_path)


@pytest.mark.parametrize(
    ("peers", "state", "evidence"),
    [
        ({(0, 1), (1, 0)}, "ok", "every pair of 2 GPUs, over PHB"),
        ({(0, 1)}, "warn", "not between cuda:0 and cuda:1"),
        (set(), "fail", "no GPU can access another one"),
    ],
)
def test_p2p(machine: Machine, peers: set[tuple[int, int]], state: str, evidence: str) -> None:
    cuda = replace(cuda_of(machine), peers=frozenset(peers))
    finding = sharing.p2p(host_of(machine, cuda=cuda))
    assert (finding.state, finding.evidence) == (state, evidence)
    assert bool(finding.fix) == (state != "ok")


def test_p2p_of_one_gpu(tmp_path: Path) -> None:
    assert sharing.p2p(host_of(workstation(tmp_path))).state == "absent"


def test_p2p_matrix(machine: Machine, tmp_path: Path) -> None:
    cuda = replace(cuda_of(machine), peers=frozenset({(0, 1)}))
    assert sharing.p2p_matrix(host_of(machine, cuda=cuda)) == [["X", "PHB"], ["no", "X"]]
    hidden = host_of(machine, cuda=cuda, environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert sharing.p2p_matrix(hidden) == [["X", "yes"], ["no", "X"]]  # which is which is unknown
    assert sharing.p2p_matrix(host_of(plain(tmp_path / "plain"))) == []


def test_ipc(machine: Machine) -> None:
    finding = sharing.ipc(host_of(machine))
    assert finding.state == "ok"
    assert "opened memory of cuda:0, cuda:1 (IPC handles and file descriptors)" in finding.evidence
    finding = sharing.ipc(host_of(machine, cuda=cuda_of(machine, posix_fd_handles=0)))
    assert finding.state == "ok"
    assert "no file descriptors" in finding.evidence


@pytest.mark.parametrize("mode", [2, 3])
def test_ipc_needs_a_shared_compute_mode(machine: Machine, mode: int) -> None:
    finding = sharing.ipc(host_of(machine, cuda=cuda_of(machine, compute_mode=mode)))
    assert finding.state == "fail"
    assert "nvidia-smi -c DEFAULT" in finding.fix


def test_ipc_that_was_refused(machine: Machine) -> None:
    refusal = "cuIpcOpenMemHandle_v2: CUDA_ERROR_INVALID_CONTEXT (201)"
    finding = sharing.ipc(host_of(machine, cuda=replace(cuda_of(machine), ipc=("", refusal))))
    assert (finding.state, finding.evidence) == ("fail", f"cuda:1: {refusal}")
    assert "--ipc=host --pid=host" in finding.fix


def test_ipc_without_cuda(machine: Machine) -> None:
    assert sharing.ipc(host_of(machine, cuda=Cuda(reason="none"))).state == "absent"


@pytest.mark.parametrize(
    ("scope", "capabilities", "state"),
    [
        (None, "", "ok"),
        (0, "", "ok"),
        (1, "", "warn"),
        (1, ROOT_CAPABILITIES, "ok"),
        (2, ROOT_CAPABILITIES, "ok"),
        (3, ROOT_CAPABILITIES, "warn"),
    ],
)
def test_fd_passing(machine: Machine, scope: int | None, capabilities: str, state: str) -> None:
    machine.write("proc/self/status", f"Name: python\n{capabilities}")
    if scope is not None:
        machine.write("proc/sys/kernel/yama/ptrace_scope", scope)
    finding = sharing.fd_passing(host_of(machine))
    assert finding.state == state


@pytest.mark.parametrize(
    ("scope", "capabilities", "state"),
    [
        (None, "", "ok"),
        (0, "", "ok"),
        (1, "", "warn"),
        (2, "", "warn"),
        (2, ROOT_CAPABILITIES, "ok"),
        (3, ROOT_CAPABILITIES, "warn"),
    ],
)
def test_ptrace_matters_without_a_gpu(
    tmp_path: Path, scope: int | None, capabilities: str, state: str
) -> None:
    machine = plain(tmp_path)
    machine.write("proc/self/status", f"Name: python\n{capabilities}")
    if scope is not None:
        machine.write("proc/sys/kernel/yama/ptrace_scope", scope)
    finding = sharing.ptrace(host_of(machine))
    assert (finding.state, finding.evidence[:17]) == (state, f"ptrace_scope is {scope or 0}")
    assert ("a device carries what goes to or from other memory" in finding.fix) == (
        state == "warn"
    )
    assert ("sysctl kernel.yama.ptrace_scope=0" in finding.fix) == (state == "warn" and scope != 3)


def test_ptrace_that_a_container_forbids(tmp_path: Path) -> None:
    refusal = "process_vm_readv: Operation not permitted"
    finding = sharing.ptrace(host_of(plain(tmp_path), vm=refusal))
    assert finding.state == "warn"
    assert finding.evidence == f"{refusal}: p2p reaches memory of Endpoint.empty() only"
    assert "--cap-add=SYS_PTRACE" in finding.fix


def test_fd_passing_filtered(machine: Machine) -> None:
    refusal = "pidfd_getfd: Operation not permitted"
    finding = sharing.fd_passing(host_of(machine, pidfd=refusal))
    assert (finding.state, finding.evidence) == ("warn", refusal)
    assert "--cap-add=SYS_PTRACE" in finding.fix


def test_fd_passing_without_gpu(tmp_path: Path) -> None:
    assert sharing.fd_passing(host_of(plain(tmp_path))).state == "absent"


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
@pytest.mark.parametrize(
    ("value", "dma_buf", "state"),
    [
        ("", 0, "ok"),
        ("expandable_segments:False", 0, "ok"),
        ("expandable_segments:True", 1, "ok"),
        ("max_split_size_mb:64, expandable_segments:True", 0, "warn"),
    ],
)
def test_expandable_segments(
    machine: Machine, name: str, value: str, dma_buf: int, state: str
) -> None:
    cuda = cuda_of(machine, dma_buf=dma_buf)
    finding = sharing.expandable_segments(host_of(machine, cuda=cuda, environ={name: value}))
    assert finding.state == state


def test_expandable_segments_without_cuda(machine: Machine) -> None:
    environ = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    host = host_of(machine, cuda=Cuda(reason="cuInit refused"), environ=environ)
    assert sharing.expandable_segments(host).state == "absent"


def test_expandable_segments_without_gpu(tmp_path: Path) -> None:
    assert sharing.expandable_segments(host_of(plain(tmp_path))).state == "absent"
