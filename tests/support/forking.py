"""fork where it is what a test is about."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def forking() -> Iterator[None]:
    """Without the warnings of those who rightly advise against it in a process with threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12
        warnings.simplefilter("ignore", RuntimeWarning)  # JAX, once it is imported
        yield
