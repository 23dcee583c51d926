"""What ends an example early."""

__all__ = ["KernelFailed", "OutOfStep", "Stopped"]


class KernelFailed(RuntimeError):
    """A kernel ended before it was done; the message says which block, in which round, and why."""


class OutOfStep(RuntimeError):
    """A notification has another value than the one that is due."""


class Stopped(RuntimeError):
    """The job came to an early end; the message says why."""
