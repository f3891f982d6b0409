"""The share of a build that is the autograd library: it may fail without failing the build."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from fusegen.build.autograd import AutogradLibrary
from fusegen.build.key import digest_of
from fusegen.build.placing import finished_directory, put_in_place, work_directory
from fusegen.build.steps import Step, relative

_WEIGHT = 40_000  # it takes as long as kernels of about so many bytes


@dataclass
class AutogradJob:
    """Compiles the library in a directory of this build's own and moves it into place, as Job does a package."""

    library: AutogradLibrary
    store: Path
    reason: str
    force: bool
    missing_kernels: int = 0
    shortcoming: str | None = None  # set by `place`
    work: Path = field(init=False)
    finished: Path = field(init=False)
    output: Path = field(init=False)

    def __post_init__(self) -> None:
        self.work = work_directory(self.store)
        self.finished = finished_directory(self.store)
        # Its name says its content: a build that was interrupted may have left it.
        self.output = self.finished / f"{digest_of(self.library.parts())[:16]}.so"
        if self.force:
            self.output.unlink(missing_ok=True)

    @property
    def name(self) -> str:
        return f"{self.library.support.name}/{self.library.source.name}"

    @property
    def _messages(self) -> Path:
        return self.work / "messages"

    def steps(self, cores: int) -> list[Step]:
        """The compiler's step, which succeeds whatever the compiler says, and one that keeps what it finished.

        As many as a package has: ninja begins with what has the most steps behind it, and would leave one for the end.
        """
        part = self.work / f"{self.output.stem}.part"
        where = self.library.support
        there, messages, output = (shlex.quote(relative(path, where)) for path in (part, self._messages, self.output))
        compiled = f"{shlex.join(self.library.command(part))} 2> {messages} || rm -f {there}"
        if self.output.is_file():
            compiled = "true"
        kept = f"! [ -e {there} ] || {{ sync {there} && mv -f {there} {output}; }}"
        return [
            Step(self.name, part, ["sh", "-c", compiled], cwd=where, weight=_WEIGHT),
            Step(f"{self.name} (in place)", self.output, ["sh", "-c", kept], cwd=where, needs=[part]),
        ]

    def place(self, finished: Collection[Path]) -> bool:
        """Puts the library into place, or that there can be none, if the step came to its end; whether it did."""
        if self.output not in finished:
            return False
        library = self.library
        made = self.output if self.output.is_file() else None
        put_in_place(made, library.path, library.key_file, library.parts(), self.work)
        if made is None:
            self.shortcoming = (
                "cannot be compiled with this torch, so calls of the modules take longer (--force tries again): "
                + self._first_error()
            )
        return True

    def _first_error(self) -> str:
        lines = self._messages.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line for line in lines if "error" in line), "the compiler gave no reason")
