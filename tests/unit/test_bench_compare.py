"""`zerohop bench compare`: on files that are made for it."""

from dataclasses import replace

import pytest
from click.testing import CliRunner
from zerohop.bench.compare import Change
from zerohop.bench.rows import Row, header, write_json
from zerohop.cli import main

LATENCY = Row(
    *("host", "latency", "p2p", "soft0", "empty", "cpp", 8, "zerohop"),
    *("p50", 1e-6, "s", 3, 0.05e-6),
)
RATE = replace(LATENCY, test="write", metric="bandwidth", value=10e9, unit="B/s", spread=0.5e9)


@pytest.fixture
def compared(tmp_path):
    def run(
        before: list[Row], after: list[Row], *options: str, columns: int = 200, **facts: str
    ) -> tuple[int, str]:
        for name, rows, more in (("a.json", before, {}), ("b.json", after, facts)):
            write_json(tmp_path / name, {**header("host", {}), **more}, rows)
        files = [str(tmp_path / name) for name in ("a.json", "b.json")]
        result = CliRunner().invoke(
            main, ["bench", "compare", *files, *options], env={"COLUMNS": str(columns)}
        )
        return result.exit_code, " ".join(result.output.split())

    return run


def to(row: Row, value: float, **others) -> Row:
    return replace(row, value=value, **others)


@pytest.mark.parametrize(
    ("row", "value", "verdict"),
    [
        (LATENCY, 1.09e-6, "noise"),  # both spreads together are 10 %
        (LATENCY, 1.2e-6, "worse"),
        (LATENCY, 0.8e-6, "better"),
        (RATE, 8.9e9, "worse"),
        (RATE, 11.5e9, "better"),
        (RATE, 10.9e9, "noise"),
    ],
)
def test_a_change_beyond_both_spreads_is_marked(row, value, verdict):
    assert Change(row, to(row, value)).verdict == verdict


def test_of_a_figure_that_was_taken_once_noise_is_not_known():
    change = Change(LATENCY, to(LATENCY, 2e-6, turns=1, spread=0.0))
    assert change.verdict == "?"
    assert [change.fails(limit) for limit in (0.5, 1.5)] == [True, False]


def test_what_moved_is_shown_and_the_rest_is_counted(compared):
    files = [LATENCY, RATE], [to(LATENCY, 1.5e-6), to(RATE, 10.1e9)]
    code, text = compared(*files)
    assert code == 0
    assert "2 figures are in both files: 0 better, 1 worse, 1 within noise, not shown" in text
    assert "1.5 us +50.0%" in text
    assert "GB/s" not in text


def test_runs_that_differ_are_distinguished(compared):
    _, text = compared([LATENCY], [LATENCY], cpu="another one")
    assert "The runs differ in cpu: " in text
    assert "and another one." in text
    _, text = compared([LATENCY], [to(LATENCY, 1e-6, device="rxe0")])
    assert "1 figures are in both files" in text  # whatever the device is called


@pytest.mark.parametrize(
    ("before", "after", "limit", "said"),
    [
        (
            LATENCY,
            1.3e-6,
            "10%",
            "beyond 10%: host latency 8 B, zerohop C++, p50, memory empty: worse by 30.0%",
        ),
        (RATE, 8e9, "12.5%", "beyond 12.5%: host write 8 B"),
        (LATENCY, 1.3e-6, "40", ""),
        (LATENCY, 1.09e-6, "5%", ""),  # within noise
        (LATENCY, 0.5e-6, "10%", ""),  # better
        (replace(LATENCY, impl="ucx"), 9e-6, "10%", ""),  # a peer became slower
    ],
)
def test_the_exit_status_tells_on_demand_of_a_loss(compared, before, after, limit, said):
    files = [before], [to(before, after)]
    assert compared(*files)[0] == 0
    code, text = compared(*files, "--fail-above", limit)
    assert code == (1 if said else 0)
    assert said in text
    assert ("beyond" in text) == bool(said)


def test_a_figure_of_ours_that_is_gone_fails_and_is_named(compared):
    both, limit = [LATENCY, RATE], ("--fail-above", "10%")
    code, text = compared(both, [RATE, to(RATE, 1.0, nbytes=64)], *limit)
    assert code == 1
    assert "1 are only in the first file, 1 only in the second" in text
    assert "gone: host latency 8 B, zerohop C++, p50, memory empty, by p2p" in text
    assert "write" not in text.partition("gone:")[2]
    assert compared([RATE], both, *limit)[0] == 0  # one more is no loss
    assert compared([replace(LATENCY, impl="ucx"), RATE], [RATE], *limit)[0] == 0


@pytest.mark.parametrize(("value", "code"), [(2e9, 1), (9.9e9, 0)])
def test_a_figure_that_goes_by_another_route_is_compared(compared, value, code):
    by_host = [to(row, value, route="host") for row in (RATE, replace(RATE, nbytes=64))]
    limit = ("--fail-above", "10%")
    found, text = compared([RATE, replace(RATE, nbytes=64), LATENCY], [*by_host, LATENCY], *limit)
    assert found == code
    assert "The route of zerohop changed from p2p to host: host write (empty)." in text
    assert "3 figures are in both files" in text
    assert "gone" not in text
    assert text.count("beyond 10%: host write") == 2 * code


def test_figures_of_several_routes_are_compared_each_with_its_own(compared):
    by_host = to(RATE, 1e9, route="host", spread=0.0)
    limit = ("--fail-above", "10%")
    code, text = compared([RATE, by_host], [by_host, RATE], *limit)
    assert code == 0
    assert "2 figures are in both files: 0 better, 0 worse" in text
    assert "The route" not in text
    others = [replace(RATE, route=route) for route in ("mapped", "staged")]
    for after, gone in (([by_host], 1), (others, 2)):  # which became which is not known
        code, text = compared([RATE, by_host], after, *limit)
        assert (code, text.count("gone:")) == (1, gone)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no rows"),
        ("[]", "no rows"),
        ('[{"test": "x"}]', "its first row is not a header"),
        ('[{"test": "header"}, {"test": "x"}]', "no rows of zerohop bench --json"),
    ],
)
def test_files_of_something_else_are_refused(tmp_path, text, complaint):
    path = tmp_path / "x.json"
    path.write_text(text)
    result = CliRunner().invoke(main, ["bench", "compare", str(path), str(path)])
    assert result.exit_code == 1
    assert complaint in " ".join(result.output.split())


@pytest.mark.parametrize("limit", ["-1", "much", "nan"])
def test_limits_that_are_none_are_refused(compared, limit):
    code, text = compared([LATENCY], [LATENCY], "--fail-above", limit)
    assert code == 2
    assert "is not a percentage such as 10%" in text
