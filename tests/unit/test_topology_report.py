"""How a topology shows itself: repr, table, JSON, drawing."""

import dataclasses
import io
import json
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
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


def test_repr_is_the_matrix(tmp_path: Path) -> None:
    assert repr(look(virtual(tmp_path))).splitlines() == [
        "<Topology: 2 GPUs, 1 RDMA devices, 1 NUMA node>",
        "        GPU0  GPU1  mlx5_0  NUMA",
        "GPU0    X     PHB   PHB     0",
        "GPU1    PHB   X     PHB     0",
        "mlx5_0  PHB   PHB   X       0",
        "X: the device itself; PHB: a PCIe host bridge, that is the CPU",
        "not asked",
    ]


def test_table_is_never_squeezed(tmp_path: Path) -> None:
    text = printed(look(dgx(tmp_path)), width=40)
    [row] = [line for line in text.splitlines() if line.split()[:1] == ["GPU3"]]
    assert row.split()[1:] == [
        *("NODE", "NODE", "PIX", "X", "SYS", "SYS", "SYS", "SYS"),
        *("NODE", "NODE", "PIX", "PIX", "SYS", "SYS", "SYS", "SYS"),
        *("0", "mlx5_3,", "mlx5_2"),
    ]
    for word in ("PIX", "PXB", "PHB", "NODE", "SYS", "NV#"):
        assert any(line.split()[:1] == [word] for line in text.splitlines())


def test_table_shows_ports_and_addresses(tmp_path: Path) -> None:
    text = printed(look(workstation(tmp_path)))
    rows = [line.split() for line in text.splitlines() if line.split()[:1] == ["mlx5_0"]]
    assert rows[1:] == [
        ["mlx5_0", "1", "DOWN", "Ethernet", "100", "Gb/s", "0000:02:00.0", "10.0.0.5"],
        ["mlx5_0", "2", "ACTIVE", "Ethernet", "100", "Gb/s", "0000:02:00.0", "10.0.0.5"],
    ]


def test_table_shows_few_of_many_addresses(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    gids = [(n, f"::ffff:10.0.0.{n}", "RoCE v2", "eth0") for n in range(1, 6)]
    machine.rdma("mlx5_0", "0000:00 04.0", link="Ethernet", gids=gids)
    assert "10.0.0.1, 10.0.0.2, 10.0.0.3, and 2 more" in printed(look(machine))


def test_table_without_rdma_device_names_soft0(tmp_path: Path) -> None:
    text = printed(look(plain(tmp_path)))
    assert "No RDMA device: soft0" in text
    assert "PIX" not in text  # no matrix, no legend


@pytest.mark.parametrize("build", SHAPES)
def test_json_round_trip(tmp_path: Path, build: Callable[[Path], Machine]) -> None:
    topology = look(build(tmp_path))
    value = json.loads(json.dumps(topology.to_dict()))
    assert value == topology.to_dict()
    assert value["matrix"] == topology.matrix()
    assert [gpu["cuda"] for gpu in value["gpus"]] == [
        f"cuda:{n}" for n in range(len(topology.gpus))
    ]


def test_json_names_the_nearest(tmp_path: Path) -> None:
    value = look(dgx(tmp_path)).to_dict()
    assert value["gpus"][5]["nearest"] == ["mlx5_5", "mlx5_4"]
    assert value["rdma"][0]["ports"][0]["gbps"] == 400


@pytest.mark.parametrize("build", SHAPES)
def test_drawing_shows_every_device(tmp_path: Path, build: Callable[[Path], Machine]) -> None:
    topology = look(build(tmp_path))
    drawn = texts(topology._repr_html_())
    for device in topology.devices:
        assert drawn.count(device.name) == 1
    for node in topology.numa:
        assert any(text.startswith(f"NUMA {node.number} ") for text in drawn)


@pytest.mark.parametrize("build", SHAPES)
def test_boxes_of_devices_do_not_overlap(tmp_path: Path, build: Callable[[Path], Machine]) -> None:
    svg = ElementTree.fromstring(look(build(tmp_path))._repr_html_())
    width, height = (float(word) for word in svg.attrib["viewBox"].split()[2:])
    boxes = [
        tuple(float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        for group in svg.iter(f"{SVG}g")
        for rect in group.iter(f"{SVG}rect")
    ]
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in combinations(boxes, 2):
        assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1
    for x, y, w, h in boxes:
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height


def test_drawing_of_nvlinks(tmp_path: Path) -> None:
    topology = look(dgx(tmp_path))
    gpus = [gpu.name for gpu in topology.gpus]
    uniform = {frozenset(pair): 18 for pair in combinations(gpus, 2)}
    drawn = texts(dataclasses.replace(topology, nvlinks=uniform)._repr_html_())
    assert "NVLink: 18 between every two GPUs" in drawn
    ring = {frozenset((a, b)): n for n, (a, b) in enumerate(pairwise(gpus), 1)}
    drawn = texts(dataclasses.replace(topology, nvlinks=ring)._repr_html_())
    assert [text for text in drawn if text.startswith("NV")] == [f"NV{n}" for n in range(1, 8)]


def test_drawing_marks_what_is_down(tmp_path: Path) -> None:
    machine = virtual(tmp_path)
    machine.write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN")
    svg = look(machine)._repr_html_()
    assert "not active" in texts(svg)
    assert "stroke-dasharray" in svg


def test_drawing_of_nothing(tmp_path: Path) -> None:
    svg = zh.topology(tmp_path, tmp_path, {}, "not asked")._repr_html_()
    assert texts(svg) == ["neither GPUs, RDMA devices nor NUMA nodes here"]


def test_command() -> None:
    done = CliRunner().invoke(main, ["topo", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["devices"] == [d.name for d in zh.topology().devices]
    assert CliRunner().invoke(main, ["topo"]).exit_code == 0
