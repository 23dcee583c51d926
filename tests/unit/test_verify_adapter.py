"""`zerohop verify --adapter` on soft0: every step that needs no hardware passes, and what goes wrong is named."""

import json
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zerohop as zh
from click.testing import CliRunner, Result
from support import adapter_steps
from support.nvcc import compiles
from support.patience import patient
from zerohop.cli import main
from zerohop.verify.adapter import channel, facts, gpu, report
from zerohop.verify.adapter.engine_end import NAME, EngineEnd, Notifier
from zerohop.verify.adapter.far import Far, Listener
from zerohop.verify.adapter.runner import STEPS, Runner
from zerohop.verify.adapter.setup import Spec
from zerohop.verify.adapter.step import FAIL, PASS, Failed
from zerohop.verify.adapter.step import Result as StepResult

QUICK = ["verify", "--adapter", "soft0", "--quick"]
GPU = [step.name for step in STEPS[[step.name for step in STEPS].index("gpu") :]]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(gpu._core, "gpu_count", lambda: 0)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*QUICK, *arguments], catch_exceptions=False)


def outcomes(value: dict) -> dict[str, str]:
    return {step["name"]: step["outcome"] for step in value["steps"]}


@pytest.mark.timeout(patient(120))
def test_on_soft0_all_but_the_gpu_is_verified(tmp_path):
    path = tmp_path / "report.json"
    done = invoke("--json", str(path))
    assert done.exit_code == 0, done.output
    value = json.loads(path.read_text())
    found = outcomes(value)
    assert list(found) == [step.name for step in STEPS]
    assert {name for name, what in found.items() if what == "pass"} == set(found) - {
        "perftest",
        *GPU,
    }
    assert found["perftest"] == "not possible here"
    assert {found[name] for name in GPU} == {"not run"}
    for step in value["steps"]:
        assert bool(step["figures"]) == (step["outcome"] == "pass")
        assert bool(step["cause"]) == (step["outcome"] != "pass")
    assert value["good"] is True
    assert value["facts"]["what it is"].startswith("NOT HARDWARE: the software HCA")
    page = done.stdout.splitlines()
    assert len(page) <= report.MOST_LINES
    assert max(map(len, page)) <= report.WIDTH
    assert page[0].startswith("report of zerohop verify --adapter: 19 pass, 0 fail, ")
    assert page[1] == value["facts"]["what it is"]
    assert page[3].startswith(f"package zerohop {zh.__version__}, Python ")


@pytest.mark.timeout(patient(120))
def test_between_a_listener_and_its_peer_with_the_json_as_the_output():
    command = [sys.executable, "-m", "zerohop", "verify", "--adapter=soft0", "--listen=127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
        try:
            address = listener.stdout.readline().strip()
            for _ in range(2):  # a second one is served, too
                done = invoke("--peer", address, "--json")
                assert done.exit_code == 0, done.output
                value = json.loads(done.stdout)
                assert "127.0.0.1:" in value["facts"]["between"]
                assert "fail" not in outcomes(value).values()
        finally:
            listener.kill()
    gone = invoke("--peer", address, "--json")
    assert gone.exit_code == 1
    steps = {step["name"]: step for step in json.loads(gone.stdout)["steps"]}
    assert steps["open"]["outcome"] == "pass"  # it needs no other end
    assert steps["states"]["outcome"] == "fail"
    assert "is --listen still running there" in steps["states"]["cause"]
    assert steps["send"]["cause"] == "stands on 'states', which failed"


@pytest.mark.timeout(patient(120))
def test_ctrl_c_ends_it_and_shows_what_was_found():
    command = [sys.executable, "-m", "zerohop", "verify", "--adapter", "soft0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            while "endpoints" not in process.stderr.readline():
                pass
            process.send_signal(signal.SIGINT)
            output, said = process.communicate(timeout=patient(60))
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "pass endpoints" in output
    assert "bandwidth" not in output


@pytest.fixture
def listener():
    with Listener("soft0", local=True) as made:
        yield made


@pytest.mark.timeout(patient(60))
def test_a_step_that_crashes_or_hangs_costs_that_step_alone(listener):
    seen = []
    with Runner(Spec("soft0", listener.address), adapter_steps.STEPS.all, seen.append) as runner:
        runner.run()
    results = runner.results
    assert [result.name for result in seen] == [step.name for step in adapter_steps.STEPS.all]
    assert results["crashes"].cause == "the process of this step was killed by SIGSEGV"
    assert results["hangs"].cause.startswith("the process of this step hangs: no message")
    assert results["raises"].cause.startswith("ZeroDivisionError: a bug (raises, line ")
    assert results["errs"].cause == "VerbsError: the device says no"
    for name in ("crashes", "hangs", "raises", "errs"):
        assert results[name].outcome == "fail"
    cannot = results["cannot"]
    assert (cannot.outcome, cannot.cause, cannot.remedy) == (
        "not possible here", "the device has none", "another device",
    )  # fmt: skip
    assert results["behind it"].cause == "stands on 'crashes', which failed"
    assert results["behind what cannot"].cause == "stands on 'cannot', which is not possible here"
    assert results["last"].outcome == "pass"
    assert results["last"].figures["pid"] != results["first"].figures["pid"]


@pytest.mark.timeout(patient(60))
def test_what_a_failed_step_leaves_is_gone(listener):
    steps = [
        step
        for step in adapter_steps.STEPS.all
        if step.name in ("first", "cannot", "raises", "last")
    ]
    for chosen, same in ((["first", "cannot", "last"], True), (["first", "raises", "last"], False)):
        kept = [step for step in steps if step.name in chosen]
        with Runner(Spec("soft0", listener.address), kept) as runner:
            runner.run()
        first, last = (runner.results[name].figures["pid"] for name in ("first", "last"))
        assert (first == last) == same


@pytest.mark.timeout(patient(60))
def test_strangers_get_nothing_and_do_not_end_the_listener(listener):
    secret, host, port = channel.split_address(listener.address)
    other = channel.make_address(bytes(len(secret)), host, port)
    with pytest.raises((zh.PeerLost, zh.AuthenticationError)):
        channel.dial(other)
    with socket.create_connection((host, port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n" * 20)
        with suppress(ConnectionResetError):
            while stranger.recv(1000):  # until it is shut out
                pass
    far = Far(listener.address)
    with pytest.raises(Exception, match="asks for 'close', which is unknown"):
        far._call("close")
    with pytest.raises(Exception, match="asks for 'engine_close', which is unknown"):
        far.engine_close()
    assert len(far.open(2)) == 2
    far.close()


def test_a_message_that_is_altered_or_repeated_is_refused():
    a, b = socket.socketpair()
    near, far = channel.Channel(a, b"key", "near"), channel.Channel(b, b"key", "far")
    near.send([1])
    raw = b.recv(1000)
    a.sendall(raw)
    assert far.receive(1.0) == [1]
    a.sendall(raw)  # again
    with pytest.raises(zh.AuthenticationError):
        far.receive(1.0)
    far.send([2])
    altered = bytearray(a.recv(1000))
    altered[-2] ^= 1
    b.sendall(altered)
    with pytest.raises(zh.AuthenticationError):
        near.receive(1.0)
    b.sendall(b"\xff" * 36)
    with pytest.raises(zh.ProtocolError, match="a message of 4294967295 bytes"):
        near.receive(1.0)
    with pytest.raises(zh.TransferTimeout):
        near.receive(0.0)
    b.close()
    with pytest.raises(zh.PeerLost):
        near.receive(1.0)
    a.close()


def test_wrong_usage_is_reported():
    address = zh.Endpoint  # any object: its text is no address
    for arguments, words in (
        (["--adapter", "nope"], "there is no device nope: there are"),
        (["--adapter", "soft0", "--minutes=1"], "cannot be combined with --minutes"),
        (["--adapter", "soft0", "--listen", "--quick"], "can be combined with nothing else"),
        (["--adapter", "soft0", "--listen", "nowhere"], "'nowhere' is not HOST:PORT"),
        (["--adapter", "soft0", "--peer", str(address)], "this is not an address"),
        (["--to", "soft0"], "--to takes --adapter"),
        (["--quick"], "--quick takes --adapter"),
        (["--json", "file"], "--json FILE takes --adapter"),
        (["--listen", "here:1"], "--listen HOST:PORT takes --adapter"),
    ):
        done = CliRunner().invoke(main, ["verify", *arguments])
        assert done.exit_code == 2, done.output
        assert words in done.output


def test_a_page_of_failures_alone_is_a_page_still():
    said = {"what it is": "x", "device": "d", "driver": "y", "kernel": "k"}
    said |= {"zerohop": "0", "python": "3", "machine": "m", "time": "t"}
    results = [
        StepResult(step.name, step.proves, FAIL, "because " * 60, "do " * 60) for step in STEPS
    ]
    page = report.page(said, "here and there", results).splitlines()
    assert len(page) <= report.MOST_LINES
    assert "... the JSON has the rest" in page
    one = [StepResult(step.name, step.proves, PASS, figures={"a": "b " * 200}) for step in STEPS]
    one[3] = results[3]
    page = report.page(said, "here and there", one)
    assert len(page.splitlines()) <= report.MOST_LINES
    assert page.count("Remedy: do do") == 1


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"node_desc": "simulated by zerohop"}, "NOT HARDWARE: a simulated mlx5 adapter"),
        ({"node_desc": "rxe7"}, "NOT HARDWARE: Soft-RoCE"),
        ({"node_desc": "x"}, "NOT HARDWARE, as far as is known"),
        (
            {"hca_type": "MT4129", "device/vendor": "0x15b3", "device/device": "0x1021"},
            "hardware: PCI 15b3:1021, MT4129",
        ),
    ],
)
def test_it_says_what_it_runs_on(tmp_path, files, words):
    for name, text in files.items():
        path = tmp_path / "sys/class/infiniband/mlx5_0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert facts.what_it_is("mlx5_0:1", tmp_path).startswith(words)


def test_the_driver_is_named_with_its_version(tmp_path):
    device = tmp_path / "sys/class/infiniband/mlx5_0/device"
    device.mkdir(parents=True)
    assert facts.driver_of("mlx5_0", tmp_path) == "none on PCI"
    driver = tmp_path / "sys/bus/pci/drivers/mlx5_core"
    driver.mkdir(parents=True)
    (device / "driver").symlink_to(driver)
    assert facts.driver_of("mlx5_0", tmp_path) == "mlx5_core of the kernel"
    module = tmp_path / "sys/module/mlx5_core"
    module.mkdir(parents=True)
    (module / "version").write_text("24.10-1.1.4\n")
    assert facts.driver_of("mlx5_0", tmp_path) == "mlx5_core 24.10-1.1.4"


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_its_kernels_are_compiled(tmp_path, architecture):
    assert Path(gpu.SOURCE).exists()
    compiles(gpu.SOURCE, architecture, tmp_path)


@pytest.mark.timeout(patient(60))
def test_bytes_that_the_device_alters_fail_the_step_that_compares_them(monkeypatch, tmp_path):
    monkeypatch.setenv("ZEROHOP_FAULTS", "seed=2,alter=1")  # of Endpoints alone
    done = invoke("--json", str(tmp_path / "report.json"))
    assert done.exit_code == 1, done.output
    value = json.loads((tmp_path / "report.json").read_text())
    assert [name for name, what in outcomes(value).items() if what == "fail"] == ["endpoints"]
    [cause] = [step["cause"] for step in value["steps"] if step["name"] == "endpoints"]
    assert "bytes differ, first byte " in cause


@pytest.mark.parametrize(
    ("spoiled", "words"), [("data", "was seen before its data"), ("value", "had the value 6")]
)
def test_a_notification_without_its_data_is_found(monkeypatch, spoiled, words):
    near, far = EngineEnd("soft0"), EngineEnd("soft0")
    try:
        peer = near.endpoint.connect(far.endpoint.address)
        notifier = Notifier(near, peer, peer.lookup(NAME))
        if spoiled == "data":
            notifier._blocks[5] = np.zeros(16, np.uint32)  # is filled, and not written
        else:
            monkeypatch.setattr(far, "endpoint", Skipping(far.endpoint))
        with ThreadPoolExecutor(1) as threads:
            heard = threads.submit(far.hear, 20, 10.0)
            notifier.notify(20, 10.0)
            with pytest.raises(Failed, match=words):
                heard.result(20)
    finally:
        near.close()
        far.close()


class Skipping:
    """An Endpoint that takes the sixth notification for the fifth."""

    def __init__(self, endpoint: zh.Endpoint) -> None:
        self._endpoint = endpoint

    def __getattr__(self, name: str) -> object:
        return getattr(self._endpoint, name)

    def wait_notify(self, slot: int, timeout: float) -> int:
        return self._endpoint.wait_notify(6 if slot == 5 else slot, timeout)


def test_the_page_of_the_documents_has_every_step(repository):
    text = (repository / "docs/adapter.md").read_text()
    sample = text.split("```")[-2]
    listed = [
        line[5:27].strip() for line in sample.splitlines() if re.match(r"(pass|-   ) \S", line)
    ]
    assert listed == [step.name for step in STEPS]
    table = text.split("| step | what it proves |")[1].split("\n\n")[0]
    for name in listed:
        assert name.rpartition(" ")[2] in table, name
