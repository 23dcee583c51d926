"""What the doctor asks of libcuda, libibverbs and the kernel, with stand-ins where hardware is missing."""

import json
import sys
from typing import Any

import pytest
from doctor_host import NBYTES
from zerohop.doctor import cuda_probe, facts, verbs_probe


class FakeDriver:
    """libcuda with two GPUs, of which the second can access the first. Calls in `refused` fail."""

    refused: dict[str, int] = {}  # noqa: RUF012

    def call(self, function: str, *arguments: Any) -> None:
        if function in self.refused:
            raise cuda_probe.CudaFailure(function, self.refused[function], "CUDA_ERROR")
        if function == "cuDeviceGetName":
            arguments[0].value = b"NVIDIA H200"
        elif function == "cuDeviceGetPCIBusId":
            arguments[0].value = f"0000:3{'AB'[arguments[2]]}:00.0".encode()
        elif function == "cuDeviceTotalMem_v2":
            arguments[0]._obj.value = NBYTES
        elif function == "cuIpcGetMemHandle":
            arguments[0]._obj.reserved = b"handle"

    def integer(self, function: str, *arguments: Any) -> int:
        self.call(function, *arguments)
        if function == "cuDeviceGetAttribute" and arguments[0] == 118:
            raise cuda_probe.CudaFailure(function, 1, "CUDA_ERROR_INVALID_VALUE")
        return {
            "cuDriverGetVersion": 13000,
            "cuDeviceGetCount": 2,
            "cuDeviceGetAttribute": 1,
            "cuDeviceCanAccessPeer": int(arguments == (1, 0)),
        }[function]


@pytest.fixture
def driver(monkeypatch):
    class Fresh(FakeDriver):
        refused: dict[str, int] = {}  # noqa: RUF012

    monkeypatch.setattr(cuda_probe, "Driver", Fresh)
    monkeypatch.setattr(cuda_probe, "ask_another", lambda handles: dict.fromkeys(handles, ""))
    monkeypatch.setattr(cuda_probe, "bar1", lambda address: (256 << 30, len(address)))
    return Fresh


def test_cuda_probe(driver):
    answer = json.loads(json.dumps(cuda_probe.probe()))
    assert answer["version"] == 13000
    assert answer["peers"] == [[1, 0]]
    assert answer["ipc"] == ["", ""]
    assert facts.CudaDevice(**answer["devices"][0]).bar1_nbytes == 256 << 30
    assert [device["pci"] for device in answer["devices"]] == ["0000:3a:00.0", "0000:3b:00.0"]
    [first, _] = answer["devices"]
    assert (first["name"], first["nbytes"]) == ("NVIDIA H200", NBYTES)
    assert first["attributes"]["dma_buf"] == 1
    assert first["attributes"]["write_order"] == 0  # the driver does not know it
    assert set(first["attributes"]) == set(cuda_probe.ATTRIBUTES)


def test_cuda_that_does_not_start(driver):
    driver.refused["cuInit"] = 802
    answer = cuda_probe.probe()
    assert (answer["reason"], answer["code"]) == ("cuInit: CUDA_ERROR (802)", 802)
    assert facts.Cuda(**answer).version == 13000


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("import sys, json; print(json.dumps({n: 'x' for n in json.loads(sys.argv[1])}))", "x"),
        ("raise SystemExit(3)", "the other process ended with exit 3"),
    ],
)
def test_the_other_process_answers_or_ends(monkeypatch, tmp_path, code, answer):
    script = tmp_path / "probe.py"
    script.write_text(code)
    monkeypatch.setattr(cuda_probe, "__file__", str(script))
    assert cuda_probe.ask_another({1: "aa", 5: "bb"}) == {1: answer, 5: answer}
    assert cuda_probe.ask_another({}) == {}


def test_the_other_process_compares_what_it_reads(monkeypatch):
    class Reading(FakeDriver):
        def call(self, function: str, *arguments: Any) -> None:
            super().call(function, *arguments)
            if function == "cuMemcpyDtoH_v2":
                arguments[0]._obj.value = cuda_probe.PATTERN

    monkeypatch.setattr(cuda_probe, "Driver", Reading)
    handles = json.dumps({0: "00" * 64, 1: "00" * 64})
    assert cuda_probe.open_all(handles) == {"0": "", "1": ""}
    monkeypatch.setattr(cuda_probe, "Driver", FakeDriver)
    assert cuda_probe.open_all(handles)["1"] == "read 0x0 where 0x5a was written"


@pytest.mark.parametrize("script", ["cuda_probe.py", "verbs_probe.py"])
def test_probes_without_their_library(script, tmp_path, monkeypatch):
    for library in ("libcuda.so.1", "libibverbs.so.1"):
        (tmp_path / library).write_bytes(b"")  # found first, and no library
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    ask = facts.ask_cuda if script == "cuda_probe.py" else facts.ask_verbs
    answer = ask()
    assert "cannot be loaded" in answer.reason
    assert answer.devices == ()


@pytest.mark.parametrize(
    ("code", "bound", "reason"),
    [
        ("import os; os.kill(os.getpid(), 11)", 60.0, "ended with status -11: no message"),
        ("raise RuntimeError('broken provider')", 60.0, "status 1: RuntimeError: broken provider"),
        ("import threading; threading.Event().wait()", 1.0, "did not answer within 1 s"),
    ],
)
def test_probe_that_dies_or_hangs(tmp_path, monkeypatch, code, bound, reason):
    (tmp_path / "cuda_probe.py").write_text(code)
    monkeypatch.setattr(facts, "__file__", str(tmp_path / "facts.py"))
    monkeypatch.setattr(facts, "PROBE_TIMEOUT_S", bound)
    assert reason in facts.ask_cuda().reason


@pytest.mark.parametrize(
    ("supported", "code", "answer"),
    [(True, 0, "/devices/pci0000:00"), (True, 19, ""), (False, 0, None)],
)
def test_data_direct(monkeypatch, supported, code, answer):
    def find(context: int, path: Any, nbytes: int) -> int:
        assert nbytes == len(path)
        path.value = b"/devices/pci0000:00"
        return code

    class Mlx5:
        def __init__(self) -> None:
            self.mlx5dv_is_supported = lambda handle: supported
            self.mlx5dv_get_data_direct_sysfs_path = find

    monkeypatch.setattr(verbs_probe.ctypes, "CDLL", lambda _: Mlx5())
    assert verbs_probe.data_direct(1, 1) == answer


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("cuda: Optional[str] = '13.0'\n", "13.0"),
        ('cuda = "12.8"\n', "12.8"),
        ("cuda: Optional[str] = None\n", None),
        (None, None),
    ],
)
def test_torch_cuda_without_importing_it(tmp_path, monkeypatch, text, version):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('imported')")
    if text is not None:
        (tmp_path / "torch/version.py").write_text(f"__version__ = '2.9'\n{text}hip = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert facts.torch_cuda() == version
