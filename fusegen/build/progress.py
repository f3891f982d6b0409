"""Tells somebody who waits what a build is doing, on stderr: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class BuildProgress:
    """A build's progress, as a context manager. Made only once there is something to do."""

    def __init__(self, console: Console | None) -> None:
        if console is None:
            from rich.console import Console

            console = Console(stderr=True)
        self._console = console
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
