"""zh.Faults as a value: its words, from keywords, text and the environment."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest
import zerohop as zh

WORDS = [field.name for field in dataclasses.fields(zh.Faults)]


def test_keywords_and_text_say_the_same() -> None:
    faults = zh.Faults(seed=7, drop=0.01, delay=0.002, fail=3, fail_status=12)
    assert faults == zh.Faults.parse("seed=7, drop=0.01, delay=2ms, fail=3, fail_status=12")
    assert faults.fail_status == "RETRY_EXC_ERR"
    assert str(faults) == "seed=7,drop=0.01,delay=0.002,fail=3,fail_status=RETRY_EXC_ERR"
    assert zh.Faults.parse(str(faults)) == faults
    assert str(zh.Faults()) == ""
    assert zh.Faults.parse("slow=50us").slow == pytest.approx(50e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drip=1", "there is no 'drip': known are seed, drop, .*, remove$"),
        ("drop", "'drop' lacks a value"),
        ("drop=2", "drop=2 is not a probability from 0 to 1"),
        ("delay=2 weeks", "delay=2 weeks is not a time from 0 to 1 hour"),
        ("fail=first", "fail=first is not an integer"),
        ("fail_status=BAD", "fail_status=BAD is not the status of a failed completion"),
        ("seed=1,,drop=1", "there is no ''"),
    ],
)
def test_wrong_words_are_named(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=message):
        zh.Faults.parse(text)
    with pytest.raises(ValueError, match=message):
        zh.Endpoint("soft0", faults=text)
    monkeypatch.setenv("ZEROHOP_FAULTS", text)
    with pytest.raises(ValueError, match="ZEROHOP_FAULTS=.*" + message):
        zh.Endpoint("soft0")


def test_wrong_types_are_refused() -> None:
    with pytest.raises(TypeError, match="faults must be a Faults, not int"):
        zh.Endpoint("soft0", faults=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"drop=\[\] is not a probability"):
        zh.Faults(drop=[])  # type: ignore[arg-type]


def test_the_environment_gives_them_where_the_call_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZEROHOP_FAULTS", "seed=7,duplicate=1")
    with zh.Endpoint("soft0") as ep, zh.Endpoint("soft0", faults="seed=8") as other:
        assert ep.faults == zh.Faults(seed=7, duplicate=1)
        assert other.faults == zh.Faults(seed=8)
        ep.set_faults(None)
        assert ep.faults is None
        assert "faults" not in ep.stats()


def test_p2p_is_off_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def route(**keywords: object) -> str:
        with zh.Endpoint("soft0", **keywords) as a, zh.Endpoint("soft0") as b:  # type: ignore[arg-type]
            here, there = a.empty(8), b.empty(8)
            return a.connect(b.address).route(here, there.remote).kind

    assert route() == "p2p"
    assert route(faults="seed=1,slow=1us") == "host"
    assert route(faults="seed=1,slow=1us", p2p=1) == "p2p"
    monkeypatch.setenv("ZEROHOP_P2P", "1")
    assert route(faults="seed=1,slow=1us") == "p2p"


def test_each_word_is_explained(repository: Path) -> None:
    assert zh.Faults.__doc__ is not None
    [section] = (repository / "README.md").read_text().split("## Faults on purpose")[1:]
    table = section.split("## ")[0]
    for word in WORDS:
        assert f"\n        {word}: " in inspect.getdoc(zh.Faults).replace("\n    ", "\n        ")
        assert f"`{word}`" in table or f"{word}=" in table
