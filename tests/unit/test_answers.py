"""Calls of a store that may have no answer: bounded, and none begins behind one that goes on."""

from __future__ import annotations

import threading

import pytest
from support.link import until
from support.patience import patient
from zerohop import answers
from zerohop.store import Store


class Nothing:
    """A store that is not asked."""

    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str) -> None: ...


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> answers.Answers:
    def yes(store: Store) -> bool:
        return True

    monkeypatch.setattr(answers, "is_of_torch", yes)
    return answers.Answers(Nothing())


def failing() -> None:
    raise KeyError("k")


def test_what_a_call_returns_or_raises(bounded: answers.Answers) -> None:
    assert bounded.of(lambda: 7) == 7
    with pytest.raises(KeyError, match="k"):
        bounded.of(failing)


def test_no_call_begins_while_a_late_one_goes_on(bounded: answers.Answers) -> None:
    release, made = threading.Event(), []

    def late() -> None:
        assert release.wait(patient(20))
        made.append("late")

    with pytest.raises(TimeoutError, match=r"no answer in 0.0 s"):
        bounded.of(late, 0.01)
    with pytest.raises(TimeoutError, match="an earlier call"):
        bounded.of(lambda: made.append("next"))
    release.set()
    assert bounded._late is not None
    until(bounded._late.done, "the late call has ended")
    bounded.of(lambda: made.append("next"))
    assert made == ["late", "next"]
