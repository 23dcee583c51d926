"""The three things `zerohop doctor` does: examine this machine, try a pair of hosts, serve one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from zerohop._endpoint.knobs import chosen, misspelt
from zerohop.doctor.checks import examine
from zerohop.doctor.far_end import greet, second_process
from zerohop.doctor.finding import Finding
from zerohop.doctor.host import Host
from zerohop.doctor.report import print_findings, print_matrix, print_outcomes, print_verdicts
from zerohop.doctor.routes import ROUTES, Verdict, judge
from zerohop.doctor.sharing import p2p_matrix
from zerohop.doctor.trial import TIMEOUT_S, Outcome, serve, share, try_pair
from zerohop.endpoint import Endpoint
from zerohop.errors import Error
from zerohop.local import RankFailed


def diagnose(host: Host, want: str | None, device: str | None, as_json: bool) -> bool:
    """Whether no check fails, or with `want` whether that route works; prints the evidence.

    A wanted route that the findings allow is tested with a second process on this machine.
    """
    if device is None:
        device = os.environ.get("ZEROHOP_DEVICE") or None
    endpoint, settings_stand = _try_endpoint(device)
    findings = [*unknown_settings(), endpoint]
    findings += examine(host) if settings_stand else []
    verdicts = judge(findings, device, p2p=not settings_stand or chosen({})["p2p"] == 1)
    outcomes: list[Outcome] = []
    if want is not None and not settings_stand:
        outcomes = [Outcome(want, "fail", endpoint.evidence)]
        works = False
    elif want is not None:
        [verdict] = [v for v in verdicts if v.route == want]
        outcomes = [_try_here(verdict, device)]
        works = outcomes[0].state == "ok"
    else:
        works = all(finding.state != "fail" for finding in findings)
    if as_json:
        matrix = p2p_matrix(host)
        _print_json(works, matrix, findings=findings, routes=verdicts, trials=outcomes)
    else:
        console = Console()
        print_findings(findings, console)
        print_matrix(p2p_matrix(host), console)
        print_verdicts(verdicts, console)
        if outcomes:
            print_outcomes(outcomes, console)
    return works


def unknown_settings() -> list[Finding]:
    """Variables that look like settings but are not: a misspelt one would be ignored silently."""
    found = misspelt(os.environ)
    if not found:
        return []
    close = [near for near in found.values() if near]
    meant = f"; did you mean {', '.join(close)}?" if close else ""
    evidence = f"{', '.join(found)}: not a setting, ignored"
    return [Finding("settings", "warn", evidence, f"correct or unset it{meant}")]


def _try_endpoint(device: str | None) -> tuple[Finding, bool]:
    """Makes an Endpoint as programs do; also returns whether the settings, including the environment, are usable."""
    try:
        with Endpoint(device) as endpoint:
            return Finding("endpoint", "ok", f"Endpoint() can be made, on {endpoint.device}"), True
    except (ValueError, TypeError) as error:
        fix = "correct that setting: a ZEROHOP_* variable, unless it is a keyword"
        return Finding("endpoint", "fail", f"Endpoint() is refused: {error}", fix), False
    except Error as error:
        fix = "choose another device (ZEROHOP_DEVICE, --verbs), or fix what the message names"
        return Finding("endpoint", "fail", f"Endpoint() fails: {error}", fix), True


def _try_here(verdict: Verdict, device: str | None) -> Outcome:
    if not verdict.possible:
        return Outcome(verdict.route, "absent", f"not tried: {verdict.reason}")
    try:
        return _with_second_process(verdict.route, device)
    except (Error, RankFailed) as error:
        return Outcome(verdict.route, "fail", str(error))


def _with_second_process(route: str, device: str | None) -> Outcome:
    with (
        second_process(serve, device) as address,
        Endpoint(device, timeout=TIMEOUT_S, p2p=1) as endpoint,
    ):
        return try_pair(endpoint, address, (route,))[1][0]


def pair(address: bytes, want: str | None, device: str | None, as_json: bool) -> bool:
    """Whether the wanted route to a counterpart works, or without `want` all that exist; compares both ends."""
    comparison: list[Finding] = []
    try:
        with Endpoint(device, timeout=TIMEOUT_S, p2p=1) as endpoint:
            comparison, outcomes = try_pair(endpoint, address, (want,) if want else ROUTES)
    except (Error, ValueError) as error:
        outcomes = [Outcome(want or "any", "fail", f"cannot connect: {error}")]
    if want:
        works = outcomes[0].state == "ok"
    else:
        states = [outcome.state for outcome in outcomes]
        works = "ok" in states and "fail" not in states
    if as_json:
        _print_json(works, comparison=comparison, trials=outcomes)
    else:
        if comparison:
            print_findings(comparison, Console())
        print_outcomes(outcomes, Console())
    return works


def listen(device: str | None) -> None:
    """Prints an address and serves peers that have it, until interrupted."""
    with Endpoint(device, timeout=TIMEOUT_S, p2p=1) as endpoint:
        greet(endpoint, share(endpoint))


def _print_json(
    works: bool,
    matrix: list[list[str]] | None = None,
    **lists: Sequence[Finding] | Sequence[Verdict] | Sequence[Outcome],
) -> None:
    value: dict[str, Any] = {"works": works}
    if matrix is not None:
        value["p2p"] = {"devices": [f"cuda:{n}" for n in range(len(matrix))], "matrix": matrix}
    value.update({name: [asdict(item) for item in items] for name, items in lists.items()})
    print(json.dumps(value, indent=2))
