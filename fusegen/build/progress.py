"""Tells somebody who waits what a command is doing, on stderr: in one live line on a terminal.

Elsewhere a build has plain lines, and what comes before it nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from fusegen.progress import listening

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


@contextmanager
def shown(console: Console | None = None) -> Iterator[None]:
    """Shows what is told meanwhile (fusegen/progress.py), how far it is and how long it has taken."""
    live = _live(console or _stderr())
    if live is None:
        yield
        return
    task = live.add_task("", total=None)
    try:
        with listening(lambda what, done, count: live.update(task, description=what, completed=done, total=count)):
            yield
    finally:
        live.stop()


def _stderr() -> Console:
    # Imported here: where there is nothing to do it is not needed, and that has to be quick.
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _live(console: Console) -> Progress | None:
    """A line that has begun; None where it would be no line, or where the program that calls has one of its own."""
    if not console.is_terminal or ("FORCE_COLOR" in os.environ and not console.file.isatty()):
        return None  # colours that are forced, in a notebook or the log of a CI, make no terminal of it
    from rich.errors import LiveError
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    live = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # what a user's module prints into a file goes there
    )
    try:
        live.start()
    except LiveError:
        return None
    return live


class BuildProgress:
    """A build's progress, as a context manager. Made only once there is something to do."""

    def __init__(self, console: Console | None) -> None:
        self._console = console or _stderr()
        self._live: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> BuildProgress:
        self._live = _live(self._console)
        if self._live is not None:
            self._task = self._live.add_task("building", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def waiting(self, name: str) -> None:
        """Another process holds the lock of a package."""
        self._say(f"{name}: waiting for another build to finish")

    def begin(self, reasons: Mapping[str, str], steps: int) -> None:
        """The build of some packages starts, for these reasons, and has so many steps."""
        for name, reason in reasons.items():
            self._say(f"{name}: building ({reason})", total=steps)

    def step(self, what: str, done: int) -> None:
        """A step has ended."""
        self._say(what, done=done)

    def built(self, name: str, seconds: float, shortcoming: str | None = None) -> None:
        """A package is in place, or something that could be done without came to nothing."""
        self._print(f"{name}: {shortcoming or f'built in {seconds:.1f} s'}")

    def _say(self, text: str, *, total: int | None = None, done: int | None = None) -> None:
        if self._live is None or self._task is None:
            self._print(text)
        elif total is not None:
            self._live.update(self._task, description=text, total=total)
        else:
            self._live.update(self._task, description=text, completed=done)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
