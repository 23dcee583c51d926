"""The plot of a benchmark's figures."""

import pytest
from zerohop.bench.plot import check_plot, draw
from zerohop.bench.rows import Row
from zerohop.bench.tables import Part, listed, over_sizes

TABLES = (
    over_sizes("write", "write bandwidth"),
    over_sizes("latency", "half round trip", "p50"),
    listed("a call", "p50", {("latency", 8): "a ping"}),
)


def row(test: str, nbytes: int, metric: str, value: float, impl: str = "zerohop") -> Row:
    return Row("soft", test, "", "", "", "python", nbytes, impl, metric, value, "")


ROWS = [
    *(row("write", nbytes, "bandwidth", nbytes * 1e6) for nbytes in (8, 64, 512)),
    *(row("write", nbytes, "bandwidth", nbytes * 2e6, "raw") for nbytes in (8, 64)),
    row("latency", 8, "p50", 1e-6),
]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_plot_is_drawn_with_all_who_are_in_it(suffix, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra zerohop[plot] is not installed")
    path = tmp_path / f"plot{suffix}"
    check_plot(path)
    assert draw(path, "bench", [Part("", ROWS, TABLES, ())])
    assert path.stat().st_size > 1000
    labels = ("zerohop", "raw", "write bandwidth", "512 B", "100 MB/s")
    text = path.read_text() if suffix == ".svg" else ""
    assert [f"<!-- {label} -->" in text for label in labels] == [suffix == ".svg"] * len(labels)
