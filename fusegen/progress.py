"""What a long command is at: told where it is done, shown by whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int], None]
"""Takes what is done next, how many of these are done, and how many there are."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Whatever is told meanwhile goes to this listener; None: to nobody."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(what: str, done: int = 0, count: int = 1) -> None:
    """Says what is done next, behind `done` of `count`."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, count)


@contextmanager
def within(what: str, done: int, count: int) -> Iterator[None]:
    """Tells of something that is done in steps, which are told behind its name."""
    tell(what, done, count)
    outer = _listener.get()
    with listening(outer and (lambda inner, *_: outer(f"{what}: {inner}", done, count))):
        yield
