"""The topology of machines written as trees: devices, distances, and the nearest RDMA device."""

import dataclasses
from collections.abc import Mapping

import pytest
import zerohop as zh
from machine import (
    ROCE_GIDS,
    Machine,
    dgx,
    software,
    without_adapter,
    workstation,
)
from zerohop.topology import Distance, RdmaDevice, Topology

NO_NVML = "not asked"


def look(machine: Machine, environ: Mapping[str, str] | None = None) -> Topology:
    return zh.topology(machine.sys, machine.proc, environ or {}, NO_NVML)


def names(found: tuple[RdmaDevice, ...]) -> list[str]:
    return [device.name for device in found]


def test_dgx_distances(tmp_path):
    topology = look(dgx(tmp_path))
    assert [len(topology.gpus), len(topology.rdma), len(topology.numa)] == [8, 8, 2]
    assert topology.matrix()[0] == [
        *("X", "PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"),
        *("PIX", "PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"),
    ]
    matrix = topology.matrix()
    assert matrix == [list(column) for column in zip(*matrix, strict=True)]


def test_dgx_gpus_spread_over_adapters(tmp_path):
    topology = look(dgx(tmp_path))
    first = [topology.nearest(f"cuda:{number}")[0].name for number in range(8)]
    assert first == [f"mlx5_{number}" for number in range(8)]
    assert names(topology.nearest("cuda:3")) == ["mlx5_3", "mlx5_2"]
    assert names(topology.nearest(1)) == ["mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"]


def test_inactive_ports_are_passed_over(tmp_path):
    machine = dgx(tmp_path)
    for number in (0, 1):
        machine.write(f"sys/class/infiniband/mlx5_{number}/ports/1/state", "1: DOWN")
    topology = look(machine)
    assert names(topology.nearest("GPU0")) == ["mlx5_2", "mlx5_3"]
    assert names(topology.nearest("GPU1")) == ["mlx5_3", "mlx5_2"]


def test_far_node_is_chosen_by_the_table_of_distances(tmp_path):
    machine = Machine(tmp_path)
    machine.numa("0", "1", "2", distances=("10 32 21", "32 10 21", "21 21 10"))
    machine.gpu("0000:10 01.0 11:00.0", 0)
    machine.rdma("mlx5_0", "0000:20 01.0 21:00.0", 1)
    machine.rdma("mlx5_1", "0000:30 01.0 31:00.0", 2)
    topology = look(machine)
    assert (
        topology.distance("GPU0", "mlx5_0") == topology.distance("GPU0", "mlx5_1") == Distance.SYS
    )
    assert names(topology.nearest("GPU0")) == ["mlx5_1"]


def test_nested_switches(tmp_path):
    """GPU0 and mlx5_0 on one switch; mlx5_1 on a second switch below it; mlx5_2 on another root port."""
    machine = Machine(tmp_path)
    machine.numa("0-7")
    top = "0000:17 01.0 18:00.0"
    machine.gpu(f"{top} 19:00.0 1a:00.0", 0)
    machine.rdma("mlx5_0", f"{top} 19:01.0 1b:00.0", 0)
    machine.rdma("mlx5_1", f"{top} 19:02.0 1c:00.0 1d:00.0 1e:00.0", 0)
    machine.rdma("mlx5_2", "0000:17 02.0 20:00.0", 0)
    topology = look(machine)
    assert topology.matrix()[0] == ["X", "PIX", "PXB", "PHB"]
    assert names(topology.nearest("0000:1a:00.0")) == ["mlx5_0"]


def test_gids_leave_out_unused_entries(tmp_path):
    [device] = look(workstation(tmp_path)).rdma
    gids = device.ports[0].gids
    assert [gid.index for gid in gids] == [index for index, *_ in ROCE_GIDS]
    assert [gid.type for gid in gids] == ["IB/RoCE v1", "RoCE v2", "RoCE v2"]
    assert [gid.routable for gid in gids] == [False, False, True]
    assert str(gids[2].value.ipv4_mapped) == "10.0.0.5"
    assert gids[2].netdev == "eth0"


def test_software_device_is_far_from_everything(tmp_path):
    machine = software(tmp_path)
    machine.gpu("0000:00 06.0")
    topology = look(machine)
    assert topology.label("GPU0", "rxe0") == "SYS"
    assert topology.rdma[0].parent == "dmy0"
    assert topology.rdma[0].pci is None
    assert names(topology.nearest("GPU0")) == ["rxe0"]  # still the nearest there is


def test_iwarp_is_never_nearest(tmp_path):
    machine = Machine(tmp_path)
    machine.numa("0-7")
    machine.rdma("siw0", None, node_type="4: RNIC", link="Ethernet")
    topology = look(machine)
    assert topology.rdma[0].node_type == "RNIC"
    assert topology.nearest(0) == ()


def test_empty_tree(tmp_path):
    topology = zh.topology(tmp_path, tmp_path, {}, NO_NVML)
    assert topology.devices == topology.net == topology.numa == ()
    assert repr(topology) == "<Topology: 0 GPUs, 0 RDMA devices, NUMA nodes not known>"


@pytest.mark.parametrize(
    ("environ", "order"),
    [
        ({}, ["GPU0", "GPU1", "GPU2"]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, ["GPU2", "GPU0"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-00000001"}, ["GPU1"]),
        ({"CUDA_VISIBLE_DEVICES": "1,7,0"}, ["GPU1"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_cuda_ordinals(tmp_path, environ, order):
    machine = Machine(tmp_path)
    machine.numa("0")
    for slot in (4, 5, 6):
        machine.gpu(f"0000:00 0{slot}.0")
    topology = look(machine, environ)
    assert [gpu.name for gpu in topology.cuda] == order
    for number, name in enumerate(order):
        assert topology.find(f"cuda:{number}") == topology.find(name)
    with pytest.raises(LookupError, match="no device 'cuda:3'"):
        topology.find("cuda:3")


def test_cuda_ordinals_of_different_models_need_an_order(tmp_path):
    machine = Machine(tmp_path)
    machine.numa("0")
    machine.gpu("0000:00 04.0", product=1)
    machine.gpu("0000:00 05.0", product=2)
    with pytest.raises(LookupError, match="set CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        look(machine).nearest("cuda:0")
    ordered = look(machine, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert ordered.find("cuda:1") == ordered.gpus[1]


@pytest.mark.parametrize("device", ["mlx5_9", "GPU8", "0000:ff:00.0", 2, "cuda:x"])
def test_unknown_device(tmp_path, device):
    with pytest.raises(
        LookupError, match=r"devices here: cuda:0, .*GPU0, .*mlx5_7; NUMA nodes: 0, 1"
    ):
        look(dgx(tmp_path)).find(device)


def test_nvlinks_win_over_pcie(tmp_path):
    topology = look(without_adapter(tmp_path))
    linked = dataclasses.replace(topology, nvlinks={frozenset(("GPU0", "GPU1")): 4})
    assert topology.label("GPU0", "GPU1") == "SYS"
    assert linked.label("GPU1", "GPU0") == "NV4"
    assert linked.distance("GPU0", "GPU1") < Distance.PIX
