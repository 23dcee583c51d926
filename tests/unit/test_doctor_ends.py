"""`zerohop doctor --peer` compares both ends: what each brings, and what is used of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from zerohop.doctor import ends
from zerohop.doctor.ends import End, EndDevice
from zerohop.doctor.finding import Finding
from zerohop.endpoint import Endpoint

HERE = EndDevice("mlx5_0", "Ethernet", "RoCE v2", 4096)
THERE = EndDevice("mlx5_4", "Ethernet", "RoCE v2", 4096)
USED = {"mtu": 4096, "gid": "::ffff:10.0.0.1", "remote_gid": "::ffff:10.0.0.2"}


def compared(
    here: list[EndDevice], there: list[EndDevice], settings: dict[str, object], version: str = "1"
) -> dict[str, Finding]:
    near, far = End("a", "1", tuple(here)), End("b", version, tuple(there))
    return {finding.name: finding for finding in ends.compare(near, far, settings)}


def test_equal_ends_are_fine():
    found = compared([HERE], [THERE], USED)
    assert {finding.state for finding in found.values()} == {"ok"}
    assert found["devices"].evidence == "here 1 (mlx5_0), there 1 (mlx5_4): 1 used"
    assert found["mtus"].evidence == "here 4096, there 4096: 4096 used"
    assert found["gid-kinds"].evidence == (
        "here RoCE v2 (mlx5_0, Ethernet), there RoCE v2 (mlx5_4, Ethernet): "
        "::ffff:10.0.0.1 to ::ffff:10.0.0.2"
    )


def test_the_smaller_mtu_is_used_and_its_owner_reported():
    found = compared([HERE], [replace(THERE, mtu=1024)], {**USED, "mtu": 1024})["mtus"]
    assert (found.state, found.evidence) == ("warn", "here 4096, there 1024: 1024 used")
    assert "mlx5_4 there" in found.fix
    found = compared([replace(HERE, mtu=1024)], [THERE], {**USED, "mtu": 1024})["mtus"]
    assert "mlx5_0 here" in found.fix


@pytest.mark.parametrize("change", [{"gid_kind": "RoCE v1"}, {"link_layer": "InfiniBand"}])
def test_gids_of_two_kinds_do_not_meet(change):
    found = compared([HERE], [replace(THERE, **change)], {"mtu": 4096})["gid-kinds"]
    assert found.state == "fail"
    assert "not connected" in found.evidence
    assert "roce_version=" in found.fix


def test_what_an_end_shares_is_what_the_other_finds():
    devices = "soft0,soft0@127.0.0.2"
    with Endpoint(devices) as here, Endpoint(devices) as there:
        ends.share(there)
        peer = here.connect(there.address)
        assert ends.far_end(peer) == ends.describe(there)
        found = {finding.name: finding for finding in ends.examine_ends(here, peer)}
    assert {finding.state for finding in found.values()} == {"ok"}
    assert found["devices"].evidence.endswith(": 2 used")
    assert found["mtus"].evidence == "; ".join(["here 4096, there 4096: 4096 used"] * 2)


def test_an_end_that_tells_nothing():
    with Endpoint("soft0") as here, Endpoint("soft0") as there:
        [finding] = ends.examine_ends(here, here.connect(there.address))
    assert (finding.name, finding.state) == ("ends", "absent")
    assert "an older version" in finding.evidence


@pytest.mark.parametrize(
    "reported",
    [b"{", b"[]", b"{}", b'{"devices": 3}', json.dumps({"devices": [{}]}).encode(), bytes(1 << 17)],
)
def test_an_end_that_tells_something_else(reported):
    with Endpoint("soft0") as here, Endpoint("soft0") as there:
        there.share(ends.FACTS, there.register(np.frombuffer(reported, "uint8")))
        [finding] = ends.examine_ends(here, here.connect(there.address))
    assert finding.state == "absent"
    assert finding.evidence.startswith("the other end shares ")


def test_a_peer_that_is_gone_is_said_to_be():
    with Endpoint("soft0", timeout=5) as here:
        with Endpoint("soft0") as there:
            peer = here.connect(there.address)
        [finding] = ends.examine_ends(here, peer)
    assert finding.state == "fail"
