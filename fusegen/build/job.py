"""One package's share of a build: its steps, and where what they made goes."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from fusegen.build.commands import Commands
from fusegen.build.key import KEY_FILE, OUTPUT, Unit
from fusegen.build.placing import put_in_place, work_directory
from fusegen.build.steps import Step


@dataclass
class Job:
    """Compiles what is missing in a directory of this build's own, then moves everything into place.

    Nothing is ever written where another build, or the one after an interrupted one, could see it half done:
    objects enter the store by a rename, under a name that says their content, and so does the output.
    """

    commands: Commands
    store: Path
    reason: str
    force: bool
    shortcoming: None = None  # there is none: what fails raises
    work: Path = field(init=False)
    names: dict[Unit, str] = field(init=False)
    missing: list[Unit] = field(init=False)

    def __post_init__(self) -> None:
        inputs = self.commands.inputs
        self.names = {unit: inputs.object_name(unit) for unit in inputs.units}
        self.missing = [unit for unit, name in self.names.items() if self.force or not (self.store / name).is_file()]
        self.work = work_directory(self.store)

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

    def steps(self, cores: int) -> list[Step]:
        """A compilation for every object that is missing, kernels on so many cores each, and the link."""
        compile_step = self.commands.compile_step
        steps = [compile_step(unit, self.work / self.names[unit], cores=cores) for unit in self.missing]
        objects = [(self.work if unit in self.missing else self.store) / name for unit, name in self.names.items()]
        return [*steps, self.commands.link_step(objects, self.output)]

    def place(self, finished: Collection[Path]) -> bool:
        """Keeps every finished object, and puts the extension into place if it is finished; whether it was.

        What did not finish may be half written: by a compiler that was killed, on a full disk.
        """
        for unit in self.missing:
            made = self.work / self.names[unit]
            if made in finished:
                os.replace(made, self.store / made.name)
        if self.output not in finished:
            return False
        inputs = self.commands.inputs
        put_in_place(self.output, inputs.package / OUTPUT, inputs.package / KEY_FILE, inputs.parts, self.work)
        for old in self.store.glob("*.o"):
            if old.name not in self.names.values():
                old.unlink(missing_ok=True)
        return True
