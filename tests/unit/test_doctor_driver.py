"""The doctor on the NVIDIA driver and CUDA: every state of every check."""

from pathlib import Path

import pytest
from doctor_host import CLOSED, OPEN, cuda_of, host_of, offer_device_files
from machine import Machine, plain, virtual
from zerohop.doctor import driver
from zerohop.doctor.facts import Cuda


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return virtual(tmp_path)


@pytest.mark.parametrize(
    ("text", "state", "evidence"),
    [
        (OPEN, "ok", "580.159.04, open kernel modules"),
        (CLOSED, "warn", "535.104.05, proprietary kernel modules: no dma-buf"),
        (CLOSED.replace("535.104", "470.57"), "fail", "470.57.05"),
        ("NVRM version: something new", "warn", "unknown version: NVRM version: something new"),
        (None, "fail", "GPU0, GPU1 without a loaded NVIDIA driver"),
    ],
)
def test_driver(machine: Machine, text: str | None, state: str, evidence: str) -> None:
    if text is not None:
        machine.write("proc/driver/nvidia/version", text)
    finding = driver.driver(host_of(machine))
    assert (finding.state, finding.evidence) == (state, evidence)
    assert bool(finding.fix) == (state != "ok")


def test_driver_without_gpu(tmp_path: Path) -> None:
    assert driver.driver(host_of(plain(tmp_path))).state == "absent"


def test_gpu_files(machine: Machine) -> None:
    offer_device_files(machine)
    finding = driver.gpu_files(host_of(machine))
    assert finding.state == "ok"
    assert finding.evidence == "/dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia0, /dev/nvidia1"
    finding = driver.gpu_files(host_of(machine, access=False))
    assert finding.state == "fail"
    assert "not permitted" in finding.evidence


@pytest.mark.parametrize(
    ("container", "fix"), [(False, "nvidia-modprobe -u"), (True, "docker run --gpus all")]
)
def test_gpu_files_missing(machine: Machine, container: bool, fix: str) -> None:
    offer_device_files(machine)
    (machine.root / "dev/nvidia-uvm").unlink()
    if container:
        machine.write(".dockerenv", "")
    finding = driver.gpu_files(host_of(machine))
    assert finding.state == "fail"
    assert finding.evidence == "/dev/nvidia-uvm missing"
    assert fix in finding.fix


def test_gpu_files_without_gpu(tmp_path: Path) -> None:
    assert driver.gpu_files(host_of(plain(tmp_path))).state == "absent"


def test_cuda(machine: Machine) -> None:
    finding = driver.cuda(host_of(machine))
    assert (finding.state, finding.evidence) == ("ok", "CUDA 13.0: H200, H200")


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (100, "CUDA_VISIBLE_DEVICES"),
        (802, "nvidia-fabricmanager"),
        (803, "reboot"),
        (804, "forward compatibility"),
        (999, "nvidia-modprobe -u"),
        (0, "install the user part of the driver"),
    ],
)
def test_cuda_that_does_not_start(machine: Machine, code: int, fix: str) -> None:
    answer = Cuda(reason=f"cuInit: CUDA_ERROR ({code})", code=code, version=13000)
    finding = driver.cuda(host_of(machine, cuda=answer))
    assert finding.state == "fail"
    assert finding.evidence == answer.reason
    assert fix in finding.fix


def test_old_cuda(machine: Machine) -> None:
    devices = cuda_of(machine).devices
    finding = driver.cuda(host_of(machine, cuda=Cuda(version=11080, devices=devices)))
    assert finding.state == "fail"
    assert finding.evidence == "the driver knows CUDA 11.8, 12.0 is needed"


def test_cuda_is_not_asked_without_gpu(tmp_path: Path) -> None:
    host = host_of(plain(tmp_path))
    host.ask_cuda = lambda: pytest.fail("libcuda was asked")
    assert driver.cuda(host).state == "absent"


@pytest.mark.parametrize(
    ("built", "state"), [("13.0", "ok"), ("12.8", "ok"), ("14.1", "warn"), (None, "absent")]
)
def test_torch_cuda(machine: Machine, built: str | None, state: str) -> None:
    finding = driver.torch_cuda(host_of(machine, torch_cuda=built))
    assert finding.state == state
    assert bool(finding.fix) == (state == "warn")


def test_torch_cuda_without_gpu(tmp_path: Path) -> None:
    assert driver.torch_cuda(host_of(plain(tmp_path), torch_cuda="13.0")).state == "absent"
