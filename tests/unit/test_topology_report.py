"""How a topology shows itself: repr, table, JSON, drawing."""

import io
import json
from xml.etree import ElementTree

import pytest
import zerohop as zh
from click.testing import CliRunner
from machine import Machine, dgx, plain, software, virtual, without_adapter, workstation
from rich.console import Console
from zerohop.cli import main
from zerohop.topology import Topology
from zerohop.topology.report import print_topology

SVG = "{http://www.w3.org/2000/svg}"
SHAPES = [dgx, workstation, virtual, software, plain, without_adapter]


def look(machine: Machine) -> Topology:
    return zh.topology(machine.sys, machine.proc, {}, "not asked")


def printed(topology: Topology, width: int = 80) -> str:
    out = io.StringIO()
    print_topology(topology, Console(file=out, width=width))
    return out.getvalue()


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_repr_is_the_matrix(tmp_path):
    assert repr(look(virtual(tmp_path))).splitlines() == [
        "<Topology: 2 GPUs, 1 RDMA devices, 1 NUMA node>",
        "        GPU0  GPU1  mlx5_0  NUMA",
        "GPU0    X     PHB   PHB     0",
        "GPU1    PHB   X     PHB     0",
        "mlx5_0  PHB   PHB   X       0",
        "X: the device itself; PHB: a PCIe host bridge, that is, the CPU",
        "not asked",
    ]


def test_table_is_never_squeezed(tmp_path):
    text = printed(look(dgx(tmp_path)), width=40)
    [row] = [line for line in text.splitlines() if line.split()[:1] == ["GPU3"]]
    assert row.split()[1:] == [
        *("NODE", "NODE", "PIX", "X", "SYS", "SYS", "SYS", "SYS"),
        *("NODE", "NODE", "PIX", "PIX", "SYS", "SYS", "SYS", "SYS"),
        *("0", "mlx5_3,", "mlx5_2"),
    ]
    for word in ("PIX", "PXB", "PHB", "NODE", "SYS", "NV#"):
        assert any(line.split()[:1] == [word] for line in text.splitlines())


@pytest.mark.parametrize("build", SHAPES)
def test_json_round_trip(tmp_path, build):
    topology = look(build(tmp_path))
    value = json.loads(json.dumps(topology.to_dict()))
    assert value == topology.to_dict()
    assert value["matrix"] == topology.matrix()
    assert [gpu["cuda"] for gpu in value["gpus"]] == [
        f"cuda:{n}" for n in range(len(topology.gpus))
    ]


@pytest.mark.parametrize("build", SHAPES)
def test_drawing_shows_every_device(tmp_path, build):
    topology = look(build(tmp_path))
    drawn = texts(topology._repr_html_())
    for device in topology.devices:
        assert drawn.count(device.name) == 1
    for node in topology.numa:
        assert any(text.startswith(f"NUMA {node.number} ") for text in drawn)


def test_command():
    done = CliRunner().invoke(main, ["topo", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["devices"] == [d.name for d in zh.topology().devices]
    assert CliRunner().invoke(main, ["topo"]).exit_code == 0
