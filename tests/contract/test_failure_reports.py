"""Failure reports reach every rank that is connected, whatever its Endpoint is called, and nobody else."""

from zerohop._world.failure_reports import LEFT, FailureReports
from zerohop._world.notifications import BELL


def test_who_shares_the_memory_is_told(open_endpoint) -> None:
    a, b = open_endpoint(name="a"), open_endpoint(name="b")
    stranger = open_endpoint(name="rank 1 of job (or so it says)")
    for other in (b, stranger):
        a.connect(other.address)
        other.accept()
    words = [FailureReports(ep, "job", rank, 2, BELL) for rank, ep in enumerate((a, b))]
    words[0].send(LEFT, "it had enough")
    assert words[1].why_left(0) == "it had enough"
    assert words[0].heard() == []
