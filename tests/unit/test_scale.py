"""The model of large jobs: its sums, its limits, and what `zerohop scale` prints."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from zerohop._endpoint.knobs import KNOBS
from zerohop.cli import main
from zerohop.scale import Job, System, limits, weigh

PLENTY = System(descriptors=1 << 30, pinned_nbytes=1 << 50, maps=1 << 30, host_nbytes=1 << 60)
SMALL = {"message_slots": 4, "message_bytes": 1024, "send_depth": 32}


def first(job: Job, system: System | None = None) -> str:
    return limits(job, system)[0].what


def test_what_a_rank_takes_is_what_the_documents_say():
    one = weigh(Job(2))
    assert one.registered_nbytes == (32 + 5 + 16) * (40 + 16384) + 8 * 258
    assert one.pinned_nbytes - one.registered_nbytes == 131_072 + (258 + 512) * 64

    def each(**knobs: int) -> int:
        """Of one Peer more, where all buffers are there."""
        return weigh(Job(101, **knobs)).pinned_nbytes - weigh(Job(100, **knobs)).pinned_nbytes

    assert round(each() / 1e3) == 150
    assert round(each(send_depth=32) / 1e3) == 19


@pytest.mark.parametrize(
    ("job", "system", "what"),
    [
        (Job(1000), System(), "pinned memory (RLIMIT_MEMLOCK)"),
        (Job(1000), PLENTY, "queue pairs in an adapter's cache"),
        (Job(1000, on="soft0"), System(), "descriptors (RLIMIT_NOFILE)"),
        (Job(1000, on="soft0"), PLENTY, "completions of a device (max_cqe)"),
        (Job(1000, on="soft0", **SMALL), PLENTY, "ranks that collectives serve"),
        (Job(1000, per_host=1), replace(PLENTY, host_nbytes=1 << 28), "RAM of a host, for 1 ranks"),
        (Job(1000), replace(PLENTY, maps=185), "memory mappings (vm.max_map_count)"),
    ],
)
def test_what_breaks_first(job, system, what):
    assert first(job, system) == what


@pytest.mark.parametrize("on", ["mlx5", "soft0"])
def test_a_limit_is_met_by_the_first_peer_that_does_not_fit(on):
    system = System()
    for limit in limits(Job(2, on=on, per_host=3, rails=2), system):
        if limit.what == "ranks that collectives serve" or limit.peers > 1 << 60:
            continue

        def there_are(peers: int, limit=limit) -> bool:
            job = Job(peers + 1, on=on, per_host=3, rails=2)
            return next(each for each in limits(job, system) if each.what == limit.what).holds

        assert there_are(limit.peers)
        assert not there_are(limit.peers + 1)


def run(*arguments: str, status: int) -> str:
    done = CliRunner().invoke(main, ["scale", *arguments], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.output


def test_the_command_tells_programs_the_same():
    options = ("--ranks", "10,20000", "--on", "soft0", "--message-slots", "2", "--json")
    small, large = json.loads(run(*options, status=1))
    assert small["rank"]["queue_pairs"] == 9
    assert large["job"]["message_slots"] == 2
    broken = {each["what"] for each in large["limits"] if not each["holds"]}
    assert "ranks that collectives serve" in broken
    assert all(each["holds"] for each in small["limits"])


def test_the_command_prints_a_column_for_each_job_and_what_helps():
    shown = run("--ranks", "4,9000", "--peers", "2", status=1)
    assert "4 ranks" in shown
    assert "9,000 ranks" in shown
    assert "ranks that collectives serve: several Worlds" in shown
    assert "ulimit" not in shown  # what holds needs no help


@pytest.mark.parametrize(
    "wrong",
    [
        ("--ranks", "many"),
        ("--ranks", "1"),
        ("--send-depth", "0"),
        ("--on", "efa"),
    ],
)
def test_senseless_jobs_are_refused(wrong):
    assert "Invalid value" in run(*wrong, status=2)


def test_a_rank_has_no_more_devices_than_its_host():
    words = "--rails 8 of a rank exceeds --adapters 1 of its host"
    assert words in run("--rails", "8", status=2)
    run("--ranks", "2", "--rails", "2", "--adapters", "2", "--json", status=0)


def test_the_defaults_are_those_of_an_endpoint():
    defaults = {knob.name: knob.default for knob in KNOBS}
    job = Job(2)
    assert all(getattr(job, name) == defaults[name] for name in SMALL)
