"""The knobs of an Endpoint: keyword before variable before default, and what is in effect."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from zerohop import _core
from zerohop.knobs import KEYWORDS, KNOBS, VARIABLES, Knobs, chosen, misspelt


def test_each_knob_has_a_keyword_a_default_in_range_and_a_line_in_the_docstring() -> None:
    assert {knob.name for knob in KNOBS} == set(Knobs.__annotations__)
    assert zh.Endpoint.__doc__ is not None
    for knob in KNOBS:
        assert knob.default in knob.allowed
        assert f"{knob.name}: " in zh.Endpoint.__doc__
        assert f"``${knob.variable}``, else {knob.default}" in zh.Endpoint.__doc__


def test_the_variables_are_those_that_the_docstring_tells_of() -> None:
    assert zh.Endpoint.__doc__ is not None
    assert set(re.findall(r"\$(ZEROHOP_\w+)", zh.Endpoint.__doc__)) == set(VARIABLES)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ZEROHOP_DEVISE", "ZEROHOP_DEVICE"),
        ("ZEROHOP_timeout", "ZEROHOP_TIMEOUT"),
        ("ZEROHOP_RETRY_COUNTS", "ZEROHOP_RETRY_COUNT"),
        ("ZEROHOP_NAME", ""),  # a keyword alone
        ("ZEROHOP_XYZZY", ""),
    ],
)
def test_a_misspelt_variable_is_found_with_the_setting_that_was_meant(name: str, near: str) -> None:
    others = {"ZEROHOP_DEVICE": "soft0", "ZEROHOP_TEST_GPUS": "", "PATH": "/bin"}
    assert misspelt({name: "1", **others}) == {name: near}
    assert misspelt(others) == {}


def test_a_keyword_wins_over_a_variable_and_a_variable_over_the_default() -> None:
    environment = {
        "ZEROHOP_MTU": "1024",
        "ZEROHOP_TRAFFIC_CLASS": "0x6a",
        "ZEROHOP_RETRY_COUNT": "",
    }
    values = chosen({"mtu": 2048}, environment)
    assert (values["mtu"], values["traffic_class"], values["retry_count"]) == (2048, 106, 7)
    assert set(values) == {knob.name for knob in KNOBS}


def test_integers_of_numpy_are_integers_and_bools_say_yes_and_no() -> None:
    given = {"mtu": np.int64(2048), "p2p": True, "relaxed_ordering": False}
    values = chosen(given, {})
    assert {name: values[name] for name in given} == {"mtu": 2048, "p2p": 1, "relaxed_ordering": 0}
    assert {type(value) for value in values.values()} == {int}


@pytest.mark.parametrize(
    ("given", "environment", "error", "message"),
    [
        ({"mtu": 1000}, {}, ValueError, "mtu must be one of 256, 512, 1024, 2048, 4096, not 1000"),
        ({"gid_index": 256}, {}, ValueError, "gid_index must be from -1 to 255, not 256"),
        ({"ack_timeout": 0}, {}, ValueError, "ack_timeout must be from 1 to 31, not 0"),
        ({"retry_count": True}, {}, TypeError, "retry_count must be an int, not bool"),
        ({"roce_version": True}, {}, TypeError, "roce_version must be an int, not bool"),
        ({"rnr_retry": 1.0}, {}, TypeError, "rnr_retry must be an int, not float"),
        ({"retries": 3}, {}, TypeError, "no keyword 'retries'.*retry_count"),
        (
            {"devices": 3},
            {},
            TypeError,
            "device, timeout, name, spin, host, local_rank, registration",
        ),
        ({}, {"ZEROHOP_MTU": "big"}, ValueError, "ZEROHOP_MTU='big' is not a whole number"),
        ({}, {"ZEROHOP_SERVICE_LEVEL": "16"}, ValueError, "ZEROHOP_SERVICE_LEVEL .environment."),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(
    given: dict[str, object], environment: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        chosen(given, environment)


def test_the_route_shows_what_is_in_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROHOP_TRAFFIC_CLASS", "96")
    with (
        zh.Endpoint("soft0", mtu=1024, rd_atomic=4, send_depth=64, retry_count=5) as a,
        zh.Endpoint("soft0", rd_atomic=2) as b,
    ):
        inbox = b.empty(8)
        peer = a.connect(b.address)
        source = a.empty(8)
        settings = peer.route(source, inbox.remote).settings
    assert settings["device"] == "soft0"
    assert settings["mtu"] == 1024
    assert (settings["rd_atomic_out"], settings["rd_atomic_in"]) == (2, 2)
    assert (settings["send_depth"], settings["retry_count"]) == (64, 5)
    assert settings["traffic_class"] == 96
    assert settings["port_num"] == 1
    assert settings["remote_gid"] != settings["gid"]
    with pytest.raises(zh.PeerLost):  # closed with its endpoint
        peer.route(source, inbox.remote)


# What one keyword is shown as, where two ends agree on a value for each direction.
ALIASES = {
    "rd_atomic": {"rd_atomic_out", "rd_atomic_in"},
    "message_slots": {"message_slots_out", "message_slots_in"},
}


def settings_of(**keywords: Any) -> dict[str, int | float | str]:
    with zh.Endpoint("soft0", **keywords) as a, zh.Endpoint("soft0") as b:
        return a.connect(b.address).route(a.empty(8), b.empty(8).remote).settings


def test_the_route_shows_every_knob_and_keyword() -> None:
    wanted = {"device", "timeout", "spin", "host", "registration"}
    for knob in KNOBS:
        wanted |= ALIASES.get(knob.name, {knob.name})
    assert wanted <= settings_of().keys()
    assert zh.Route.settings.__doc__ is not None
    for alias in set().union(*ALIASES.values()):
        assert alias in zh.Route.settings.__doc__


def test_keywords_are_in_effect_and_shown() -> None:
    settings = settings_of(
        timeout=7.5,
        spin=1e-3,
        host="127.0.0.1",
        relaxed_ordering=0,
        registration="staged",
        registration_cache=3,
        registration_cache_entries=5,
    )
    assert (settings["timeout"], settings["spin"]) == (7.5, 1e-3)
    assert settings["host"] == "127.0.0.1"
    assert (settings["relaxed_ordering"], settings["registration_cache"]) == (0, 3)
    assert (settings["registration"], settings["registration_cache_entries"]) == ("staged", 5)
    assert settings["roce_version"] == 2


def test_spin_and_host_come_from_keyword_before_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROHOP_SPIN", "0.25")
    monkeypatch.setenv("ZEROHOP_HOST", "127.0.0.2")
    settings = settings_of()
    assert (settings["spin"], settings["host"]) == (0.25, "127.0.0.2")
    settings = settings_of(spin=0, host="127.0.0.3")
    assert (settings["spin"], settings["host"]) == (0, "127.0.0.3")


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"spin": -1.0}, ValueError, "spin must be a number of seconds >= 0, not -1.0"),
        ({"spin": "1"}, TypeError, "spin must be a number of seconds, not str"),
        ({"host": 1}, TypeError, "host must be a str, not int"),
        ({"host": "192.0.2.1"}, zh.Error, "192.0.2.1"),  # TEST-NET-1: of no host
        ({"host": "nowhere"}, ValueError, "not 'nowhere'"),
    ],
)
def test_a_wrong_spin_or_host_is_refused(
    keywords: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        zh.Endpoint("soft0", **keywords)


def test_an_endpoint_that_cannot_have_its_port_or_gid_says_so() -> None:
    with pytest.raises(zh.VerbsError, match="soft0 has no port 2: ports are 1 to 1"):
        zh.Endpoint("soft0", port_num=2)
    with pytest.raises(zh.VerbsError, match="soft0 port 1 has no GID at gid_index 3"):
        zh.Endpoint("soft0", gid_index=3)
    with pytest.raises(zh.VerbsError, match="soft0 port 1 has no RoCE v1 GID"):
        zh.Endpoint("soft0", roce_version=1)


def test_the_reason_says_why_the_device_serves() -> None:
    with zh.Endpoint("soft0", p2p=0) as a, zh.Endpoint("soft0") as b:
        route = a.connect(b.address).route(a.empty(8), b.empty(8).remote)
    assert "soft0 serves because it was asked for" in str(route)


def test_processes_of_one_host_go_by_p2p_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ZEROHOP_P2P", raising=False)

    def kind(here: dict[str, Any], there: dict[str, Any]) -> str:
        with zh.Endpoint("soft0", **here) as a, zh.Endpoint("soft0", **there) as b:
            peer, source, target = a.connect(b.address), a.empty(8), b.empty(8)
            route = peer.route(source, target.remote)
            transfer = peer.write(source, target.remote)
            transfer.wait()
            assert transfer.route.kind == route.kind
            if route.kind == "host":
                assert "not by p2p, because" in route.reason
                assert "p2p=0 (or ZEROHOP_P2P=0)" in route.reason
            return route.kind

    assert kind({}, {}) == "p2p"
    assert kind({"p2p": 0}, {}) == kind({}, {"p2p": False}) == "host"
    monkeypatch.setenv("ZEROHOP_P2P", "0")
    assert kind({}, {}) == kind({"p2p": 1}, {}) == "host"
    assert kind({"p2p": 1}, {"p2p": 1}) == "p2p"


def test_the_core_and_the_keywords_have_the_same_defaults() -> None:
    defaults = {knob.name: knob.default for knob in KNOBS}
    assert defaults["staging_chunk"] == _core.DEFAULT_STAGING_CHUNK == 512 << 10
    assert defaults["registration_cache_entries"] == _core.DEFAULT_CACHE_ENTRIES == 1024
    assert defaults["message_slots"] == _core.DEFAULT_MESSAGE_SLOTS == 32
    assert defaults["message_bytes"] == _core.DEFAULT_MESSAGE_BYTES == 16384
    assert settings_of()["staging_chunk"] == 512 << 10
    assert defaults["p2p"] == _core.DEFAULT_P2P == 1


def test_keywords_are_those_of_the_signature() -> None:
    parameters = inspect.signature(zh.Endpoint).parameters
    assert tuple(name for name in parameters if name != "knobs") == KEYWORDS


def test_registration_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_of()["registration"] == "auto"
    monkeypatch.setenv("ZEROHOP_REGISTRATION", "peermem")
    assert settings_of()["registration"] == "peermem"
    assert settings_of(registration="auto")["registration"] == "auto"
    monkeypatch.setenv("ZEROHOP_REGISTRATION", "gpu")
    with pytest.raises(ValueError, match="no registration 'gpu': it is auto, dmabuf, peermem or"):
        zh.Endpoint("soft0")


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"device": ""}, ValueError, "device names no device: leave it out"),
        ({"host": "localhost"}, ValueError, "host must be an IPv4 or IPv6 address.*getent ahosts"),
        ({"registration": ""}, ValueError, "there is no registration ''"),
        ({"registration": 1}, TypeError, "registration must be a str, not int"),
    ],
)
def test_words_that_say_nothing_are_refused(
    keywords: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        zh.Endpoint(**keywords)


def test_a_name_in_the_environment_is_refused_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROHOP_HOST", "localhost")
    with pytest.raises(ValueError, match="not 'localhost'"):
        zh.Endpoint("soft0")


def test_a_timeout_of_zero_looks_once() -> None:
    with zh.Endpoint("soft0", timeout=0) as a, zh.Endpoint("soft0") as b:
        peer = b.connect(a.address)
        with pytest.raises(zh.TransferTimeout):
            a.wait_notify(1)
        peer.notify(1, 5).wait()
        assert a.wait_notify(1, timeout=20) == 5


def test_p2p_that_is_required_but_off_names_what_turns_it_on() -> None:
    with zh.Endpoint("soft0", p2p=0) as a, zh.Endpoint("soft0") as b:
        source, target = a.empty(8), b.empty(8)
        with pytest.raises(zh.RouteUnavailable, match=r"this Endpoint has p2p=0 .or ZEROHOP_P2P=0"):
            a.connect(b.address).write(source, target.remote, require="p2p")
        with pytest.raises(
            zh.RouteUnavailable, match=r"the peer's Endpoint has p2p=0 .or ZEROHOP_P2P=0"
        ):
            b.connect(a.address).write(target, source.remote, require="p2p")


def test_a_memory_is_not_assigned_to() -> None:
    with zh.Endpoint("soft0") as a:
        memory: Any = a.empty(8)
        with pytest.raises(
            TypeError, match=r"assign to its array, numpy.asarray.memory.\[...\] = 1"
        ):
            memory[0] = 1
        np.asarray(memory)[0] = 1
