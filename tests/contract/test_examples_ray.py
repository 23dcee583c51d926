"""Actors of Ray that hold a World, in a cluster of Ray that is started for the case."""

from __future__ import annotations

import pytest
from support.examples import example
from support.launchers import PATIENCE, needs
from zerohop.examples.ray_actors.actors import Checked, content
from zerohop.examples.ray_actors.program import tell


@pytest.mark.timeout(PATIENCE)
def test_actors_get_what_their_neighbours_write(monkeypatch, tmp_path):
    needs(modules=("ray",))
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray keeps a token there
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    done = example("ray_actors", "--actors=3", "--count=1000", "--rounds=2", warnings="default")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every number is right." in done.stdout
    assert [line.split()[1:6:2] for line in done.stdout.splitlines() if line.startswith("│")] == [
        ["0", "2", "0"],
        ["1", "0", "0"],
        ["2", "1", "0"],
    ]


def test_what_is_wrong_is_told(capsys):
    found = [[Checked(0, 1, "there", 0), Checked(1, 0, "there", wrong)] for wrong in (0, 7)]
    assert not tell(found)
    said = capsys.readouterr().out
    assert "WRONG." in said
    assert "Every number" not in said
    assert tell(found[:1])


def test_rounds_and_ranks_have_numbers_of_their_own():
    every = {content(rank, round_, 50)[7] for rank in range(5) for round_ in range(5)}
    assert len(every) == 25
