"""Which adapter an Endpoint prefers where none is named, and which rail is nearest to what memory."""

import errno
import importlib

import pytest
import zerohop as zh
from machine import Machine, dgx, plain, virtual, workstation
from zerohop._endpoint.rails import nearest_rails, preferred_adapters

package = importlib.import_module("zerohop.topology")  # the name in zerohop is the function's
ALL = ",".join(f"mlx5_{number}" for number in range(8))


@pytest.fixture
def look(monkeypatch):
    """Has the rails look at a machine written as a tree."""

    def at(machine: Machine) -> None:
        found = package.topology(machine.sys, machine.proc, {}, "not asked")
        monkeypatch.setattr(package, "topology", lambda: found)

    return at


def test_adapters_nearest_to_the_first_gpu_come_first(tmp_path, monkeypatch):
    machine = dgx(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    reason = "it is the adapter nearest to cuda:0 (PIX)"
    assert preferred_adapters(machine.root) == (["mlx5_0", "mlx5_1"], reason)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,0")
    assert preferred_adapters(machine.root) == (["mlx5_5", "mlx5_4"], reason)
    machine.write("sys/class/infiniband/mlx5_5/ports/1/state", "1: DOWN")
    assert preferred_adapters(machine.root) == (["mlx5_4"], reason)


def test_each_rank_of_a_host_has_an_adapter_near_its_own_gpu(tmp_path, monkeypatch):
    root = dgx(tmp_path).root
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for launcher in ("OMPI_COMM_WORLD", "SLURM"):
        names = {
            "OMPI_COMM_WORLD": (
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK",
            ),
            "SLURM": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
        }[launcher]
        with monkeypatch.context() as environment:
            for name, value in zip(names, ("21", "32", "5"), strict=True):
                environment.setenv(name, value)
            assert preferred_adapters(root)[1] == "it is the adapter nearest to cuda:5 (PIX)"
            assert preferred_adapters(root)[0][0] == "mlx5_5"
            environment.setenv("CUDA_VISIBLE_DEVICES", "7")  # the launcher shows each its own
            assert preferred_adapters(root)[0][0] == "mlx5_7"
    assert preferred_adapters(root, local_rank=11)[0][0] == "mlx5_3"


@pytest.mark.parametrize("build", [plain, virtual, workstation])
def test_where_there_is_no_choice_nothing_is_preferred(tmp_path, build):
    assert preferred_adapters(build(tmp_path).root) == ([], "")


def test_rails_nearest_to_gpus_and_nodes(tmp_path, look):
    look(dgx(tmp_path))
    nearest = nearest_rails(ALL)
    assert [nearest[f"cuda:{number}"] for number in range(8)] == list(range(8))
    assert nearest["numa:0"] in range(4)
    assert nearest["numa:1"] in range(4, 8)
    assert nearest_rails("mlx5_6, mlx5_1")["numa:0"] == 1
    assert nearest_rails("mlx5_6, mlx5_1")["numa:1"] == 0


def test_one_node_is_near_everything(tmp_path, look):
    machine = workstation(tmp_path)
    machine.rdma("mlx5_1", "0000:00 04.0 04:00.0", 0)
    look(machine)
    assert nearest_rails("mlx5_1,mlx5_0") == {"cuda:0": 0}


@pytest.mark.parametrize(
    ("name", "what"), [("lo", "a network interface"), ("127.0.0.1", "an IPv4 address")]
)
def test_the_name_of_an_interface_is_answered_with_its_software_device(name, what):
    with pytest.raises(zh.VerbsError, match=f"{name} is {what}: soft0@{name} is") as error:
        zh.Endpoint(name)
    assert error.value.code == errno.ENODEV
    zh.Endpoint(f"soft0@{name}").close()
