"""How long a test waits, on this machine.

ZEROHOP_TEST_SLOW, 1 unless set, says how much longer than on a usual machine things may take; an
emulated processor (tests/vm) sets it. What the package guarantees stays as it is.
"""

import os

SLOW = float(os.environ.get("ZEROHOP_TEST_SLOW", "1"))
# Seconds. The guarantee: a dead or silent peer becomes PeerLost in 5; a slow machine needs a little
# more to raise it and to look at the clock.
LOST_WITHIN = 5.0 + (SLOW - 1)


def patient(seconds: float) -> float:
    """The deadline for what may take `seconds` on a usual machine; LOST_WITHIN stays."""
    return seconds if seconds == LOST_WITHIN else seconds * SLOW
