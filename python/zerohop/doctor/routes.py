"""Which routes the findings allow on this machine, and what prevents the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zerohop.doctor.finding import Finding

ROUTES = ("host", "p2p", "gpudirect", "staged")
P2P = "host and GPU memory, between processes of one user on this host, unless one has p2p=0"


@dataclass(frozen=True)
class Verdict:
    route: str
    possible: bool
    reason: str  # what it uses, or what is missing


def judge(
    findings: Sequence[Finding], device: str | None = None, *, p2p: bool = True
) -> list[Verdict]:
    """device: the only one to consider, for instance "soft0"; None: the one that an Endpoint would choose.

    p2p: whether the environment lets Endpoints use that route (ZEROHOP_P2P).
    """
    known = {finding.name: finding for finding in findings}
    if (endpoint := known.get("endpoint")) and endpoint.state == "fail":
        return [Verdict(route, False, endpoint.evidence) for route in ROUTES]
    adapter = _lacking(known, "libibverbs", "providers", "uverbs", "transport", "ports")
    adapter += [name for name in ("gids", "memlock") if known[name].state == "fail"]
    gpu = _lacking(known, "cuda")
    host = _host(known, adapter, device)
    staged = _verdict(known, "staged", gpu, f"through pinned host memory, {host.reason}")
    return [
        host,
        _p2p(host, p2p),
        _gpudirect(known, gpu, adapter, device),
        staged if host.possible or gpu else Verdict("staged", False, host.reason),
    ]


def _is_software(device: str | None) -> bool:
    return device is not None and device.startswith("soft0")


def _lacking(known: Mapping[str, Finding], *names: str) -> list[str]:
    """Names of those that are neither ok nor a warning."""
    return [name for name in names if known[name].state in ("fail", "absent")]


def _verdict(
    known: Mapping[str, Finding], route: str, lacking: Sequence[str], reason: str
) -> Verdict:
    if not lacking:
        return Verdict(route, True, reason)
    reasons: dict[str, list[str]] = {}
    for name in lacking:
        reasons.setdefault(known[name].evidence, []).append(name)
    text = "; ".join(f"{', '.join(names)}: {evidence}" for evidence, names in reasons.items())
    return Verdict(route, False, text)


def _host(known: Mapping[str, Finding], adapter: list[str], device: str | None) -> Verdict:
    if device is not None and not _is_software(device):
        found = _verdict(known, "host", adapter, f"over {device}")
        return found if found.possible else replace(found, reason=f"{device}: {found.reason}")
    if device is None and not adapter:
        return Verdict("host", True, "over an RDMA device")
    return _verdict(known, "host", _lacking(known, "soft0"), f"over {device or 'soft0'}")


def _p2p(host: Verdict, allowed: bool) -> Verdict:
    if not allowed:
        return Verdict("p2p", False, "ZEROHOP_P2P=0 is set: unset it, or make Endpoints with p2p=1")
    # Connections, atomics and messages still need a device.
    return Verdict("p2p", host.possible, P2P if host.possible else host.reason)


def _gpudirect(
    known: Mapping[str, Finding], gpu: list[str], adapter: list[str], device: str | None
) -> Verdict:
    if _is_software(device) and not gpu:
        return Verdict(
            "gpudirect", False, f"{device} is software and copies GPU memory: use staged"
        )
    lacking = [*gpu, *adapter]
    by_dma_buf = [n for n in ("dma-buf", "rdma-dma-buf", "kernel") if known[n].state != "ok"]
    by_peermem = known["peermem"].state == "ok"
    if not lacking and by_dma_buf and not by_peermem:
        lacking = [*by_dma_buf, "peermem"]
    reason = "GPU memory registered through " + ("nvidia-peermem" if by_dma_buf else "dma-buf")
    return _verdict(known, "gpudirect", lacking, reason)
