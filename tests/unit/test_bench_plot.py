"""The plot of a benchmark's figures."""

from pathlib import Path

import pytest
from zerohop.bench.plot import check_plot, draw, panels
from zerohop.bench.report import View
from zerohop.bench.rows import Figures, Row

VIEWS = (View("write", "write bandwidth"), View("latency", "half round trip", "p50"))


def row(test: str, nbytes: int, metric: str, value: float, impl: str = "zerohop") -> Row:
    driver = "python" if impl == "zerohop" else "cpp"
    return Row("soft", test, "", "", "", driver, nbytes, impl, metric, value, "")


@pytest.fixture
def figures() -> Figures:
    return Figures(
        [
            *(row("write", nbytes, "bandwidth", nbytes * 1e6) for nbytes in (8, 64, 512)),
            *(row("write", nbytes, "bandwidth", nbytes * 2e6, "raw") for nbytes in (8, 64)),
            row("latency", 8, "p50", 1e-6),
        ]
    )


def test_a_panel_shows_ours_beside_the_peers_where_there_are_sizes_to_compare(figures) -> None:
    assert panels({"": figures}, VIEWS) == [
        (
            VIEWS[0],
            {"zerohop Python": {8: 8e6, 64: 64e6, 512: 512e6}, "raw": {8: 16e6, 64: 128e6}},
        )
    ]


def test_several_parts_are_told_apart(figures) -> None:
    ((_, drawn),) = panels({"a": figures, "b": figures}, VIEWS)
    assert list(drawn) == ["zerohop Python, a", "raw, a", "zerohop Python, b", "raw, b"]


def test_a_plot_is_drawn_with_logarithmic_axes(figures, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra zerohop[plot] is not installed")
    for suffix in (".png", ".svg", ".pdf"):
        path = tmp_path / f"plot{suffix}"
        check_plot(path)
        assert draw(path, "bench", {"": figures}, VIEWS) == [VIEWS[0]]
        assert path.stat().st_size > 1000
    text = (tmp_path / "plot.svg").read_text()
    for label in ("zerohop Python", "raw", "write bandwidth", "512 B"):
        assert f"<!-- {label} -->" in text


def test_one_size_alone_is_no_plot(tmp_path: Path) -> None:
    figures = Figures([row("write", 8, "bandwidth", 1.0)])
    assert draw(tmp_path / "x.png", "bench", {"": figures}, VIEWS) == []
    assert not (tmp_path / "x.png").exists()
