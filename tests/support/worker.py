"""A partner process: performs the cases that come over its control connection, one after the other.

Run as `python -m support.worker FD`. With each case comes its link: as a descriptor, or, from another
host, as a place to dial. SIGUSR1 makes it print the stack of every thread.
"""

import faulthandler
import signal
import sys
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle


def main() -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    control = Connection(int(sys.argv[1]))
    from support.arrays import GPUS, warm_up
    from support.case import load_function, perform
    from support.far import dial
    from support.link import Link

    warm_up(GPUS[1:])
    control.send(("ready", None))
    while True:
        try:
            case, place = control.recv()
        except EOFError:
            return
        link = Link(dial(place) if place else Connection(recv_handle(control)))
        perform(case, load_function(case), control, link)


if __name__ == "__main__":
    main()
