"""One package's share of a build: its steps, and where what they made goes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from fusegen.build.commands import Commands
from fusegen.build.key import KEY_FILE, OUTPUT, Unit
from fusegen.build.placing import (
    FINISHED,
    finished_directory,
    keep,
    keep_copy,
    put_in_place,
    stored_object,
    work_directory,
)
from fusegen.build.steps import Step


@dataclass
class Job:
    """Compiles what is missing in a directory of this build's own, then moves everything into place.

    Nothing is ever written where another build, or the one after an interrupted one, could see it half done:
    objects are renamed once they are finished, to a name that says their content. They enter the store by another
    rename, as the output does, or in the next build if this one is interrupted.

    What packages share is compiled once: a later build takes it from another package's store, and of several packages
    of one build all want the same step. (Two builds at a time may both compile it.)
    """

    commands: Commands
    store: Path
    reason: str
    force: bool
    finished_for_all: Path | None = None  # where this build leaves what packages share, if not in `finished`
    shortcoming: None = None  # there is none: what fails raises
    work: Path = field(init=False)
    finished: Path = field(init=False)
    names: dict[Unit, str] = field(init=False)
    stored: dict[Unit, Path] = field(init=False)
    missing: list[Unit] = field(init=False)

    def __post_init__(self) -> None:
        inputs = self.commands.inputs
        self.names = {unit: inputs.object_name(unit) for unit in inputs.units}
        self.work = work_directory(self.store)
        self.finished = finished_directory(self.store)
        if not self.force:
            self._take_finished()
        found = {} if self.force else {unit: self._find(unit) for unit in inputs.units}
        self.stored = {unit: path for unit, path in found.items() if path is not None}
        self.missing = [unit for unit in inputs.units if unit not in self.stored]

    @property
    def name(self) -> str:
        return self.commands.inputs.package.name

    @property
    def output(self) -> Path:
        """Where the link leaves the extension."""
        return self.work / OUTPUT

    @property
    def missing_kernels(self) -> int:
        """How many objects of kernels are missing."""
        return sum(unit in self.commands.inputs.cuda for unit in self.missing)

    def _take_finished(self) -> None:
        """Puts into the store what a build that was interrupted has left."""
        for left in self.finished.iterdir():
            if left.name in self.names.values():
                keep(left, left.name, self.store)
            else:
                left.unlink()

    def _find(self, unit: Unit) -> Path | None:
        """An object in the store: one that packages share may come from the store of another."""
        name = self.names[unit]
        here = stored_object(self.store, name)
        if here is not None or unit not in self.commands.inputs.shared:
            return here
        for other in sorted(self.store.parent.iterdir()):
            for there in (stored_object(other, name), other / FINISHED / name):
                copied = None if there is None else keep_copy(there, name, self.store, self.work)
                if copied is not None:
                    return copied
        return None

    def _object(self, unit: Unit) -> Path:
        """Where the link finds an object: in the store, or where this build leaves it."""
        if unit in self.stored:
            return self.stored[unit]
        for_all = self.finished_for_all if unit in self.commands.inputs.shared else None
        return (for_all or self.finished) / self.names[unit]

    def steps(self, cores: int) -> list[Step]:
        """A compilation for every object that is missing, kernels on so many cores each, and the link."""
        steps = []
        for unit in self.missing:
            step = self.commands.compile_step(unit, self.work / self.names[unit], cores=cores)
            steps.append(replace(step, part=step.output, output=self._object(unit)))
        objects = {unit: self._object(unit) for unit in self.names}
        return [*steps, *self.commands.link_steps(objects, self.output)]

    def place(self, finished: Collection[Path]) -> bool:
        """Keeps every finished object, and puts the extension into place if it is finished; whether it was.

        What did not finish may be half written: by a compiler that was killed, on a full disk.
        """
        kept = set(self.stored.values())
        for unit in self.missing:
            made = self._object(unit)
            if made not in finished:
                continue
            if unit in self.commands.inputs.shared:
                copied = keep_copy(made, self.names[unit], self.store, self.work)  # other packages want one too
                kept |= set() if copied is None else {copied}
            else:
                kept.add(keep(made, self.names[unit], self.store))
        if self.output not in finished:
            return False
        inputs = self.commands.inputs
        put_in_place(self.output, inputs.package / OUTPUT, inputs.package / KEY_FILE, inputs.parts, self.work)
        for old in self.store.glob("*.o"):
            if old not in kept:
                old.unlink(missing_ok=True)
        return True
