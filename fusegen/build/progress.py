"""Tells somebody who waits what a build is doing, on stderr: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class BuildProgress:
    """One build's progress, as a context manager. Made only once there is something to do."""

    def __init__(self, name: str, console: Console | None) -> None:
        if console is None:
            from rich.console import Console

            console = Console(stderr=True)
        self._console = console
        self._name = name
        self._started = time.monotonic()
        self._live: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> BuildProgress:
        if self._console.is_terminal:
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            self._live = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._live.start()
            self._task = self._live.add_task(self._name, total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def waiting(self) -> None:
        """Another process holds the lock."""
        self._say(f"{self._name}: waiting for another build to finish")

    def begin(self, reason: str, steps: int) -> None:
        """The build starts, for this reason, and has so many steps."""
        self._say(f"{self._name}: building ({reason})", total=steps)

    def step(self, what: str, done: int) -> None:
        """A step was finished."""
        self._say(f"{self._name}: {what}", done=done)

    def finish(self) -> None:
        """The build is in place."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._print(f"{self._name}: built in {time.monotonic() - self._started:.1f} s")

    def _say(self, text: str, *, total: int | None = None, done: int | None = None) -> None:
        if self._live is None or self._task is None:
            self._print(text)
        elif total is not None:
            self._live.update(self._task, description=text, total=total)
        else:
            self._live.update(self._task, description=text, completed=done)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
