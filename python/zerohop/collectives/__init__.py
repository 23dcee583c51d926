"""Collectives: arrays that all ranks of a World exchange, by one-sided writes and notifications.

They are methods of ``World``, with the names of MPI and torch.distributed. Each returns a ``Collective``, which is done unless
the call has ``wait=False``: then it runs in a background thread, and the program continues and calls ``.wait()`` later.
A keyword, instead of a second set of names like MPI's Ibcast next to Bcast, keeps one list of calls with one
order: collectives run one after the other in the order of their calls, whether waited for or not, so a later call never
overtakes. Both cases return an object, so code can use either.

Data transfer: exchange.py and cpp/engine/collective. Communication patterns: algorithms.py, reductions.py, and across hosts table.py. Failures and the other
ranks: zerohop/_world/ending.py.
"""

from zerohop.collectives.calls import CollectiveCalls
from zerohop.collectives.desk import Desk
from zerohop.collectives.order import Collective
from zerohop.collectives.reduction_calls import ReductionCalls

__all__ = ["Collective", "CollectiveCalls", "Desk", "ReductionCalls"]
