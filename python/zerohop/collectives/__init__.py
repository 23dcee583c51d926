"""Collectives: arrays that all ranks of a World exchange, by one-sided writes and notifications.

``World`` has them as methods, with the names of MPI and torch.distributed. Each returns a ``Collective``, done unless the
call said ``wait=False``: then it runs in a thread behind the program, which computes meanwhile and calls ``.wait()``.
One keyword for that, and not a second set of names as MPI's Ibcast beside Bcast, keeps one list of calls with the same
order: collectives run one after the other as they were called, waited for or not, so that what is called next never
overtakes. An object is returned in both cases, so that code can take either.

How the bytes go: exchange.py and cpp/engine/collective. Who sends to whom: algorithms.py. What becomes of
the others when one fails: zerohop/_world/ending.py.
"""

from zerohop.collectives.calls import CollectiveCalls
from zerohop.collectives.desk import Desk
from zerohop.collectives.order import Collective

__all__ = ["Collective", "CollectiveCalls", "Desk"]
