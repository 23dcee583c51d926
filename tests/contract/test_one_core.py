"""Processes that share a core: whoever waits gives way to the process that it waits for."""

import os
import resource

import pytest

SLOT = 7
ROUNDS = 200


def share_one_core(core: int) -> None:
    """This process, all of its threads."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


def sleeps(world, core: int) -> int:
    """How often the calling thread sleeps while it exchanges notifications with the other rank."""
    peer = world.peer(1 - world.rank)
    share_one_core(core)
    world.barrier()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    for number in range(1, ROUNDS + 1):
        if world.rank == 0:
            peer.notify(SLOT, number)
            assert world.endpoint.wait_notify(SLOT) == number
        else:
            assert world.endpoint.wait_notify(SLOT) == number
            peer.notify(SLOT, number)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before


# Who does not give way uses up the time for which it polls, and sleeps in every round.
@pytest.mark.parametrize("p2p", [True, False], ids=["p2p", "soft0"])
def test_two_processes_of_one_core_exchange_notifications_without_sleeping(rank_processes, p2p):
    core = min(os.sched_getaffinity(0))
    assert max(rank_processes(sleeps, 2, core, p2p=p2p)) < ROUNDS / 4
