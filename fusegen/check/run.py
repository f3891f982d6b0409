"""The whole check: specs rendered in memory, compared, and how to repair what differs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fusegen.check.compare import compare
from fusegen.check.diff import unified
from fusegen.check.disk import read_disk
from fusegen.check.findings import Finding
from fusegen.check.libraries import stale_libraries
from fusegen.check.other_specs import built_elsewhere, of_other_specs
from fusegen.check.plugins import told
from fusegen.check.repair import repair_command
from fusegen.errors import SpecError
from fusegen.files import write_output
from fusegen.plan.load import planned_files
from fusegen.render.files.manifest import MANIFEST
from fusegen.render.files.spec_digests import spec_digests
from fusegen.render.package import render_all
from fusegen.spec.find import spec_files


@dataclass(frozen=True)
class Report:
    """What a check found.

    output: the output directory as it was given. rooted: the same from the root of the repository, which is where
    patches apply and annotations belong. fresh: nothing was built there yet. absent: packages of which nothing is
    there, each with its spec file. others: packages there of specs that were not given, with their spec files, which
    were not compared. elsewhere: the directory that has the packages, where `output` has none of them. repair: one line
    for a shell. inputs: the files that were compared.
    """

    findings: tuple[Finding, ...]
    packages: int
    files: int
    output: PurePosixPath
    rooted: PurePosixPath
    fresh: bool
    absent: Mapping[str, str]
    others: Mapping[str, Path]
    elsewhere: PurePosixPath | None
    repair: str | None
    inputs: tuple[Path, ...]

    @property
    def ok(self) -> bool:
        return not self.findings

    def diff(self, finding: Finding) -> bytes:
        """Empty for what has no text."""
        if finding.old is None and finding.new is None:
            return b""
        return unified(str(self.rooted / finding.path), finding.old, finding.new)

    def patch(self) -> bytes:
        """All differences; empty where there is none."""
        return b"".join(self.diff(finding) for finding in self.findings)


def check(arguments: Sequence[Path], output: Path) -> Report:
    """Compares the packages of spec files, or everything below `output` where directories of specs are given.

    Reads files and writes none. Raises SpecError with every mistake in the specs.
    """
    complete = any(path.is_dir() for path in arguments)
    files = spec_files(arguments)
    try:
        plans = planned_files(files)
    except SpecError as error:
        raise told(error, output) from None
    rendered = render_all(plans)
    pairs = list(zip(plans, files, strict=True))
    specs = {name: file.as_posix() for plan, file in pairs for name in plan.package_names}
    disk = read_disk(output, rendered, complete=complete)
    there = disk.packages
    others = of_other_specs(output, there - set(specs), arguments) if complete else {}
    if others:
        disk, complete = disk.without(others, rendered), False
    absent = {name: spec for name, spec in specs.items() if name not in there}
    elsewhere = built_elsewhere(output, specs, arguments) if len(absent) == len(specs) else None
    findings = compare(rendered, disk, specs, spec_digests(plans), complete=complete)
    findings += stale_libraries(rendered, output, specs)
    return Report(
        findings=tuple(findings),
        packages=len(specs),
        files=len(rendered),
        output=PurePosixPath(output.as_posix()),
        rooted=from_root(output),
        fresh=disk.is_fresh,
        absent=absent,
        others=others,
        elsewhere=None if elsewhere is None else PurePosixPath(elsewhere.as_posix()),
        repair=repair_command(findings, arguments, output, specs, disk, elsewhere),
        inputs=(*files, *(output / path for path in (MANIFEST, *disk.files))),
    )


def write_patch(report: Report, path: Path, *, overwrite: bool = False) -> None:
    """Writes the patch, an empty one where nothing differs. Raises SpecError, also rather than replace a file without
    `overwrite`, and never replaces what was compared."""
    write_output(path, report.patch(), inputs=report.inputs, overwrite=overwrite)


def from_root(path: Path) -> PurePosixPath:
    """The path as seen from the root of its repository; without one, from the current directory or its parent."""
    real = Path(os.path.realpath(path))  # and not resolve(), for which a circle of links is no OSError
    here = Path.cwd()
    outside = here if here in real.parents else real.parent
    root = next((folder for folder in (real, *real.parents) if (folder / ".git").exists()), outside)
    return PurePosixPath(Path(os.path.relpath(real, root)).as_posix())
