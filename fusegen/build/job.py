"""One package's share of a build: its steps, and where what they made goes."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from fusegen.build.commands import Commands
from fusegen.build.key import KEY_FILE, OUTPUT, Unit
from fusegen.build.placing import FINISHED, finished_directory, keep_copy, put_in_place, work_directory
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
    missing: list[Unit] = field(init=False)

    def __post_init__(self) -> None:
        inputs = self.commands.inputs
        self.names = {unit: inputs.object_name(unit) for unit in inputs.units}
        self.work = work_directory(self.store)
        self.finished = finished_directory(self.store)
        if not self.force:
            self._take_finished()
            self._take_shared()
        self.missing = [unit for unit, name in self.names.items() if self.force or not (self.store / name).is_file()]

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
                os.replace(left, self.store / left.name)
            else:
                left.unlink()

    def _take_shared(self) -> None:
        """Looks for what packages share in the stores of others, where it is missing here."""
        for unit in self.commands.inputs.shared:
            name = self.names[unit]
            if (self.store / name).is_file():
                continue
            stores = self.store.parent
            for found in (*stores.glob(f"*/{name}"), *stores.glob(f"*/{FINISHED}/{name}")):
                if keep_copy(found, self.store, self.work):
                    break

    def _object(self, unit: Unit) -> Path:
        """Where the link finds an object: in the store, or where this build leaves it."""
        place = self.finished if unit in self.missing else self.store
        if unit in self.missing and unit in self.commands.inputs.shared and self.finished_for_all is not None:
            place = self.finished_for_all
        return place / self.names[unit]

    def steps(self, cores: int) -> list[Step]:
        """A compilation for every object that is missing, kernels on so many cores each, and the link."""
        steps = []
        for unit in self.missing:
            step = self.commands.compile_step(unit, self.work / self.names[unit], cores=cores)
            steps.append(replace(step, part=step.output, output=self._object(unit)))
        return [*steps, self.commands.link_step([self._object(unit) for unit in self.names], self.output)]

    def place(self, finished: Collection[Path]) -> bool:
        """Keeps every finished object, and puts the extension into place if it is finished; whether it was.

        What did not finish may be half written: by a compiler that was killed, on a full disk.
        """
        for unit in self.missing:
            made = self._object(unit)
            if made not in finished:
                continue
            if unit in self.commands.inputs.shared:
                keep_copy(made, self.store, self.work)  # other packages of this build want one too
            else:
                os.replace(made, self.store / made.name)
        if self.output not in finished:
            return False
        inputs = self.commands.inputs
        put_in_place(self.output, inputs.package / OUTPUT, inputs.package / KEY_FILE, inputs.parts, self.work)
        for old in self.store.glob("*.o"):
            if old.name not in self.names.values():
                old.unlink(missing_ok=True)
        return True
