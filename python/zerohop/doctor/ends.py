"""Compares the two ends of a pair: the devices of each, and what their Peer uses of them."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zerohop import __version__, verbs
from zerohop._core import Peer
from zerohop._endpoint.knobs import chosen
from zerohop.doctor.finding import Finding, gathered
from zerohop.endpoint import Endpoint
from zerohop.errors import Error

FACTS = "doctor/facts"  # the name under which an end shares its description, as JSON
LARGEST = 1 << 16  # bytes; anything longer is not a description


@dataclass(frozen=True)
class EndDevice:
    name: str
    link_layer: str
    gid_kind: str
    mtu: int  # bytes, of the port


@dataclass(frozen=True)
class End:
    host: str
    version: str  # of zerohop
    devices: tuple[EndDevice, ...]  # one per rail


def describe(endpoint: Endpoint) -> End:
    return End(platform.node(), __version__, tuple(map(_device, endpoint.device.split(","))))


def _device(name: str) -> EndDevice:
    knobs = chosen({})  # the values with which the Endpoint was made
    device = verbs.Device(name, port=knobs["port_num"], gid_index=knobs["gid_index"])
    layer = str(device.port_attributes["link_layer"])
    return EndDevice(name, layer, device.gid_kind, device.mtu)


def share(endpoint: Endpoint) -> None:
    """Shares the description of this end, for far_end() of the other one."""
    text = json.dumps(asdict(describe(endpoint))).encode()
    memory = endpoint.register(np.frombuffer(text, "uint8"), writable=False, cache=False)
    endpoint.share(FACTS, memory)


def far_end(peer: Peer) -> End | str:
    """The description of the other end, or why there is none. Raises PeerLost, TransferTimeout, ..."""
    try:
        remote = peer[FACTS]
    except KeyError:
        return "the other end shares no description: it runs an older version"
    if not 0 < remote.nbytes <= LARGEST:
        return f"the other end shares a description of {remote.nbytes} bytes, which is too long"
    text = np.empty(remote.nbytes, "uint8")
    peer.read(remote, text).wait()
    try:
        facts = json.loads(text.tobytes())
        devices = tuple(EndDevice(**device) for device in facts.pop("devices"))
        end = End(devices=devices, **facts)
        if not all(isinstance(text, str) for text in (end.host, end.version)):
            raise TypeError("its host and version are not text")
        for device in devices:
            words = (device.name, device.link_layer, device.gid_kind)
            if not all(isinstance(word, str) for word in words) or type(device.mtu) is not int:
                raise TypeError(f"{device} is not a device")
        return end
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return f"the other end shares an invalid description: {error}"


def compare(near: End, far: End, settings: Mapping[str, Any]) -> list[Finding]:
    """settings: those in use, of a route between the two."""
    rails: list[Mapping[str, Any]] = settings.get("rails") or [settings]
    count = min(len(near.devices), len(far.devices))
    pairs = list(zip(near.devices, far.devices, rails, strict=False))
    return [_versions(near, far), _counts(near, far, count), _kinds(pairs), _mtus(pairs)]


Pairs = list[tuple[EndDevice, EndDevice, Mapping[str, Any]]]


def _versions(near: End, far: End) -> Finding:
    text = f"zerohop {near.version} on {near.host}, {far.version} on {far.host}"
    if near.version == far.version:
        return Finding("versions", "ok", text)
    return Finding("versions", "warn", text, "install the same version on both hosts")


def _counts(near: End, far: End, count: int) -> Finding:
    here, there = (", ".join(device.name for device in end.devices) for end in (near, far))
    text = f"here {len(near.devices)} ({here}), there {len(far.devices)} ({there}): {count} used"
    if len(near.devices) == len(far.devices):
        return Finding("devices", "ok", text)
    fix = "name equally many devices on both hosts: --verbs A,B (device=, ZEROHOP_DEVICE)"
    return Finding("devices", "warn", text, fix)


def _kinds(pairs: Pairs) -> Finding:
    lines, differ = [], False
    for here, there, rail in pairs:
        used = f"{rail['gid']} to {rail['remote_gid']}" if "remote_gid" in rail else "not connected"
        lines.append(
            f"here {here.gid_kind} ({here.name}, {here.link_layer}), "
            f"there {there.gid_kind} ({there.name}, {there.link_layer}): {used}"
        )
        differ |= (here.gid_kind, here.link_layer) != (there.gid_kind, there.link_layer)
    if not differ:
        return Finding("gid-kinds", "ok", "; ".join(lines))
    fix = "use devices of one kind of network on both hosts, and the same roce_version="
    return Finding("gid-kinds", "fail", "; ".join(lines), fix)


def _mtus(pairs: Pairs) -> Finding:
    lines, fixes = [], []
    for here, there, rail in pairs:
        lines.append(f"here {here.mtu}, there {there.mtu}: {rail.get('mtu', 'none')} used")
        if here.mtu != there.mtu:
            less = f"{here.name} here" if here.mtu < there.mtu else f"{there.name} there"
            fixes.append(f"raise the MTU of the network of {less} (ip link set NETDEV mtu 4200)")
    return gathered("mtus", lines, fixes, "no devices on both")


def examine_ends(endpoint: Endpoint, peer: Peer) -> list[Finding]:
    """Compares both ends; a failure to ask is a finding, too."""
    try:
        far = far_end(peer)
        if isinstance(far, str):
            return [Finding("ends", "absent", far)]
        return compare(describe(endpoint), far, _settings(endpoint, peer))
    except Error as error:
        return [Finding("ends", "fail", f"it cannot be asked: {error}", "see the routes below")]


def _settings(endpoint: Endpoint, peer: Peer) -> Mapping[str, Any]:
    with endpoint.empty(8) as memory:
        return peer.route(memory, peer[FACTS][:8]).settings
