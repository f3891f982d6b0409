"""A lock between processes, for which nobody waits long without being told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_SILENT_SECONDS = 1.0


@contextmanager
def held(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds the lock file. waiting: called once when it takes a while to get."""
    # Imported here: it is not needed when there is nothing to build, and that has to be quick.
    from filelock import FileLock

    lock = FileLock(path)
    try:
        lock.acquire(timeout=_SILENT_SECONDS)
    except TimeoutError:  # filelock's Timeout is one
        waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
