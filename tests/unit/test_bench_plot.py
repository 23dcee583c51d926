"""The plot of a benchmark's figures."""

from pathlib import Path

import pytest
from zerohop.bench.plot import check_plot, dots, draw, panels
from zerohop.bench.report import Part, Sheet, View
from zerohop.bench.rows import Figures, Row

VIEWS = (View("write", "write bandwidth"), View("latency", "half round trip", "p50"))
SHEETS = (Sheet("a call", "p50", (("a ping", "latency", 8), ("a pong", "unmeasured", 8))),)


def row(
    test: str, nbytes: int, metric: str, value: float, impl: str = "zerohop", driver: str = "python"
) -> Row:
    return Row("soft", test, "", "", "", driver, nbytes, impl, metric, value, "")


@pytest.fixture
def figures() -> Figures:
    return Figures(
        [
            *(row("write", nbytes, "bandwidth", nbytes * 1e6) for nbytes in (8, 64, 512)),
            *(row("write", nbytes, "bandwidth", nbytes * 2e6, "raw") for nbytes in (8, 64)),
            row("latency", 8, "p50", 1e-6),
            row("latency", 8, "p50", 5e-7, driver="cpp"),
        ]
    )


def test_a_panel_shows_ours_beside_the_peers_where_there_are_sizes_to_compare(figures) -> None:
    assert panels(figures, VIEWS) == [
        (
            VIEWS[0],
            {"zerohop Python": {8: 8e6, 64: 64e6, 512: 512e6}, "raw": {8: 16e6, 64: 128e6}},
        )
    ]


def test_what_has_one_size_is_dots(figures) -> None:
    found = {"zerohop Python": [1e-6, 0.0], "zerohop C++": [5e-7, 0.0]}
    assert dots(figures, SHEETS) == [(SHEETS[0], found)]
    assert dots(figures, (Sheet("nothing", "rate", SHEETS[0].lines),)) == []


def test_a_plot_is_drawn_with_all_who_are_in_it(figures, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra zerohop[plot] is not installed")
    part = Part("", figures, VIEWS, (), SHEETS)
    for suffix in (".png", ".svg", ".pdf"):
        path = tmp_path / f"plot{suffix}"
        check_plot(path)
        assert draw(path, "bench", [part])
        assert path.stat().st_size > 1000
    text = (tmp_path / "plot.svg").read_text()
    for label in ("zerohop Python", "zerohop C++", "raw", "write bandwidth", "512 B", "a pong"):
        assert f"<!-- {label} -->" in text
    for label in ("100 MB/s", "1 us"):  # of the axes
        assert f"<!-- {label} -->" in text


def test_parts_stand_side_by_side_with_their_names_above(figures, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra zerohop[plot] is not installed")
    empty = Part("nothing here", Figures([]), VIEWS, ())
    parts = [Part(label, figures, VIEWS, ()) for label in ("near", "far")]
    assert draw(tmp_path / "plot.svg", "bench", [*parts, empty])
    text = (tmp_path / "plot.svg").read_text()
    assert [f"<!-- {label} -->" in text for label in ("near", "far", "nothing here")] == [
        True,
        True,
        False,
    ]
    assert text.count("<!-- raw -->") == 1  # in one legend for both


def test_one_size_alone_is_no_plot(tmp_path: Path) -> None:
    figures = Figures([row("write", 8, "bandwidth", 1.0)])
    assert not draw(tmp_path / "x.png", "bench", [Part("", figures, VIEWS, ())])
    assert not (tmp_path / "x.png").exists()
