"""Programs of others, unmodified, on simulated adapters: those of ibverbs-utils."""

import re
import socket
import sys

import pytest

from mlx5.simulation import Simulation, simulation

GID = "3"  # RoCE v2, IPv4
ROUNDS = "50"


@pytest.fixture(scope="module")
def adapters():
    with simulation(devices=2) as made:
        yield made


def unused_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def between(adapters: Simulation, program: str, devices: tuple[str, str], *options: str) -> str:
    """Both sides of a program, as two processes; what the second printed."""
    for _ in range(10):  # another process may take the port first
        words = (program, "-g", GID, "-n", ROUNDS, "-p", unused_port(), *options)
        with adapters.start(*words, "-d", devices[0]) as server:
            while True:  # until the server listens, of which it says nothing
                with adapters.start(*words, "-d", devices[1], "localhost") as client:
                    printed, _ = client.communicate(timeout=60)
                if "Couldn't connect" not in printed or server.poll() is not None:
                    break
            heard, _ = server.communicate(timeout=60)
        if "Couldn't listen" not in heard:
            break
    assert (server.returncode, client.returncode) == (0, 0), f"{printed}\n{heard}"
    return printed


def test_an_adapter_says_that_it_is_simulated(adapters):
    listed = adapters.run("ibv_devinfo", "-v")
    assert listed.count("hca_id:\tmlx5sim") == 2
    assert listed.count("simulated by zerohop") == 2
    assert "0x15b3" not in listed.lower()  # nobody's
    assert "PORT_ACTIVE" in listed


def test_doctor_and_topo_find_it(adapters):
    found = adapters.run(sys.executable, "-m", "zerohop", "doctor", COLUMNS="200")
    assert re.search(r"ok +uverbs +/dev/infiniband/uverbs0, /dev/infiniband/uverbs1", found), found
    assert re.search(r"ok +providers .*mlx5sim0, mlx5sim1", found), found
    drawn = adapters.run(sys.executable, "-m", "zerohop", "topo", COLUMNS="200")
    assert re.search(r"mlx5sim0 +1 +ACTIVE +Ethernet .*127\.80\.0\.1", drawn), drawn


def test_without_its_tree_nothing_is_intercepted(adapters):
    with pytest.raises(AssertionError, match=r"No IB devices found|Failed to get IB devices"):
        adapters.run("ibv_devinfo", MLX5SIM_TREE="")


@pytest.mark.parametrize("options", [(), ("-e",), ("-s", "1"), ("-s", "1000000")], ids=str)
@pytest.mark.parametrize("other", ["mlx5sim0", "mlx5sim1"])
def test_two_processes_exchange_messages(adapters, other, options):
    printed = between(adapters, "ibv_rc_pingpong", ("mlx5sim0", other), *options)
    assert f"{ROUNDS} iters" in printed


@pytest.mark.parametrize("cqe_bytes", ["64", "128"])
@pytest.mark.parametrize("nbytes", ["1", "32", "33", "64", "65"])
def test_short_messages_that_arrive_in_completions_are_whole(
    adapters, monkeypatch, nbytes, cqe_bytes
):
    monkeypatch.setenv("MLX5_CQE_SIZE", cqe_bytes)
    printed = between(
        adapters, "ibv_rc_pingpong", ("mlx5sim0", "mlx5sim1"), "-e", "-c", "-s", nbytes
    )
    assert f"{ROUNDS} iters" in printed
    assert "invalid data" not in printed


@pytest.mark.parametrize("options", [(), ("-e",)], ids=str)
def test_queue_pairs_share_receives(adapters, options):
    printed = between(adapters, "ibv_srq_pingpong", ("mlx5sim0", "mlx5sim1"), "-q", "7", *options)
    assert f"{ROUNDS} iters" in printed
