"""SIGTERM and SIGHUP unwind the stack, as an interrupt does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """While it lasts, a process that is told to end cleans up first: compilers stopped, locks and files gone.

    A handler that a program has set stays, and so does a signal that is ignored (nohup). Python lets only the
    main thread set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = [number for number, handler in former.items() if handler is signal.SIG_DFL]

    def stop(number: int, frame: FrameType | None) -> None:
        for each in ours:  # cleaning up is not to be interrupted: a terminal that closes sends both, or twice
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)  # as a shell has it

    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
