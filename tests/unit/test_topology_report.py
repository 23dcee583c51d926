"""How a topology shows itself: repr, table, JSON, drawing."""

import json
from xml.etree import ElementTree

import pytest
import zerohop as zh
from click.testing import CliRunner
from machine import Machine, dgx, plain, software, virtual, without_adapter, workstation
from zerohop.cli import main
from zerohop.topology import Topology

SVG = "{http://www.w3.org/2000/svg}"
SHAPES = [dgx, workstation, virtual, software, plain, without_adapter]


def look(machine: Machine) -> Topology:
    return zh.topology(machine.sys, machine.proc, {}, "not asked")


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
