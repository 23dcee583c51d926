"""The knobs of an Endpoint: keyword before variable before default, and what is in effect."""

import re
from typing import Any

import pytest
import zerohop as zh
from zerohop import _core
from zerohop._endpoint.knobs import KNOBS, VARIABLES, Knobs, chosen, misspelt


def test_each_knob_has_a_keyword_a_default_in_range_and_a_line_in_the_docstring():
    assert {knob.name for knob in KNOBS} == set(Knobs.__annotations__)
    assert zh.Endpoint.__doc__ is not None
    for knob in KNOBS:
        assert knob.default in knob.allowed
        assert f"{knob.name}: " in zh.Endpoint.__doc__
        assert f"``${knob.variable}``, else {knob.default}" in zh.Endpoint.__doc__


def test_the_variables_are_those_that_the_docstring_tells_of():
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
def test_a_misspelt_variable_is_found_with_the_setting_that_was_meant(name, near):
    others = {"ZEROHOP_DEVICE": "soft0", "ZEROHOP_TEST_GPUS": "", "PATH": "/bin"}
    assert misspelt({name: "1", **others}) == {name: near}
    assert misspelt(others) == {}


def test_a_keyword_wins_over_a_variable_and_a_variable_over_the_default():
    environment = {
        "ZEROHOP_MTU": "1024",
        "ZEROHOP_TRAFFIC_CLASS": "0x6a",
        "ZEROHOP_RETRY_COUNT": "",
    }
    values = chosen({"mtu": 2048}, environment)
    assert (values["mtu"], values["traffic_class"], values["retry_count"]) == (2048, 106, 7)
    assert set(values) == {knob.name for knob in KNOBS}


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
def test_a_wrong_value_is_refused_with_what_is_allowed(given, environment, error, message):
    with pytest.raises(error, match=message):
        chosen(given, environment)


def test_the_route_shows_what_is_in_effect(monkeypatch):
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


def test_the_route_shows_every_knob_and_keyword():
    wanted = {"device", "timeout", "spin", "host", "registration"}
    for knob in KNOBS:
        wanted |= ALIASES.get(knob.name, {knob.name})
    assert wanted <= settings_of().keys()
    assert zh.Route.settings.__doc__ is not None
    for alias in set().union(*ALIASES.values()):
        assert alias in zh.Route.settings.__doc__


def test_spin_and_host_come_from_keyword_before_variable(monkeypatch):
    monkeypatch.setenv("ZEROHOP_SPIN", "0.25")
    monkeypatch.setenv("ZEROHOP_HOST", "127.0.0.2")
    settings = settings_of()
    assert (settings["spin"], settings["host"]) == (0.25, "127.0.0.2")
    settings = settings_of(spin=0, host="127.0.0.3")
    assert (settings["spin"], settings["host"]) == (0, "127.0.0.3")


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"spin": -1.0}, ValueError, "spin must be a finite number of seconds >= 0, not -1.0"),
        ({"spin": "1"}, TypeError, "spin must be a number of seconds, not '1'"),
        ({"host": 1}, TypeError, "host must be a str, not int"),
        ({"host": "192.0.2.1"}, zh.Error, "192.0.2.1"),  # TEST-NET-1: of no host
        ({"host": "nowhere"}, ValueError, "not 'nowhere'"),
    ],
)
def test_a_wrong_spin_or_host_is_refused(keywords, error, message):
    with pytest.raises(error, match=re.escape(message)):
        zh.Endpoint("soft0", **keywords)


def test_an_endpoint_that_cannot_have_its_port_or_gid_says_so():
    with pytest.raises(zh.VerbsError, match="soft0 has no port 2: ports are 1 to 1"):
        zh.Endpoint("soft0", port_num=2)
    with pytest.raises(zh.VerbsError, match="soft0 port 1 has no GID at gid_index 3"):
        zh.Endpoint("soft0", gid_index=3)
    with pytest.raises(zh.VerbsError, match="soft0 port 1 has no RoCE v1 GID"):
        zh.Endpoint("soft0", roce_version=1)


def test_the_core_and_the_keywords_have_the_same_defaults():
    defaults = {knob.name: knob.default for knob in KNOBS}
    assert defaults["staging_chunk"] == _core.DEFAULT_STAGING_CHUNK == 512 << 10
    assert defaults["registration_cache_entries"] == _core.DEFAULT_CACHE_ENTRIES == 1024
    assert defaults["message_slots"] == _core.DEFAULT_MESSAGE_SLOTS == 32
    assert defaults["message_bytes"] == _core.DEFAULT_MESSAGE_BYTES == 16384
    assert settings_of()["staging_chunk"] == 512 << 10
    assert defaults["p2p"] == _core.DEFAULT_P2P == 1


def test_registration_comes_from_the_environment(monkeypatch):
    assert settings_of()["registration"] == "auto"
    monkeypatch.setenv("ZEROHOP_REGISTRATION", "peermem")
    assert settings_of()["registration"] == "peermem"
    assert settings_of(registration="auto")["registration"] == "auto"
    monkeypatch.setenv("ZEROHOP_REGISTRATION", "gpu")
    with pytest.raises(ValueError, match="no registration 'gpu': it is auto, dmabuf, peermem or"):
        zh.Endpoint("soft0")
