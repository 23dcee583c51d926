"""`zerohop doctor --want` on a machine with a GPU and no adapter: it tries, and says what is so."""

import json

from click.testing import CliRunner
from zerohop.cli import main


def want(route: str) -> tuple[int, dict[str, str]]:
    done = CliRunner().invoke(main, ["doctor", "--want", route, "--json", "--verbs", "soft0"])
    [outcome] = json.loads(done.output)["trials"]
    return done.exit_code, outcome


def test_staged_works():
    code, outcome = want("staged")
    assert (code, outcome["state"]) == (0, "ok"), outcome
    assert outcome["evidence"].startswith("64 KiB in ")
    assert "staged" in outcome["evidence"]


def test_what_does_not_work_is_not_claimed():
    code, outcome = want("gpudirect")
    assert (code, outcome["state"]) == (1, "absent"), outcome
