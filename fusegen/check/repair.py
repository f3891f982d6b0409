"""The one command that repairs what a check found."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from fusegen.check.disk import Disk
from fusegen.check.findings import Finding
from fusegen.paths import DEFAULT_OUTPUT


def repair_command(
    findings: Sequence[Finding],
    arguments: Sequence[Path],
    output: Path,
    specs: Mapping[str, str],
    disk: Disk,
    elsewhere: Path | None = None,
) -> str | None:
    """A line for a shell; None where there is nothing to repair. Where nothing was built yet, it builds all.

    arguments: the spec files and directories that were checked. specs: for each package its spec file. elsewhere: a
    directory that has the packages: the command compares with it.
    """
    if elsewhere is not None:
        given = [path.as_posix() for path in arguments]
        return shlex.join(["fusegen", "check", *given, "--output", elsewhere.as_posix()])
    commands = []
    doomed = [finding.path for finding in findings if finding.repair == "remove"]
    removed = _removals(doomed, specs, disk)
    if removed:
        recursive = [] if set(removed) <= set(doomed) else ["-r"]
        commands.append(["rm", *recursive, *((output / path).as_posix() for path in removed)])
    if any(finding.new is not None or finding.repair != "remove" for finding in findings):
        wanted = {finding.repair for finding in findings}
        options = [] if "compile" in wanted or disk.is_fresh else ["--no-compile"]
        options += [f"--{each}" for each in ("prune", "overwrite") if each in wanted]
        options += [] if output == DEFAULT_OUTPUT else ["--output", output.as_posix()]
        commands.append(["fusegen", "build", *options, *_named(findings, arguments, specs)])
    return " && ".join(shlex.join(command) for command in commands) or None


def _removals(paths: Sequence[str], specs: Mapping[str, str], disk: Disk) -> list[str]:
    """The same files, where it is all that a directory has and no spec gives it, by the directory's name."""
    doomed = set(paths)
    result: dict[str, None] = {}
    for path in paths:
        top, slash, _ = path.partition("/")
        whole = slash and top not in specs and all(p in doomed for p in disk.files if p.startswith(f"{top}/"))
        result[top if whole else path] = None
    return list(result)


def _named(findings: Sequence[Finding], arguments: Sequence[Path], specs: Mapping[str, str]) -> list[str]:
    """What was given; of several spec files those that have findings."""
    given = [path.as_posix() for path in arguments]
    if any(path.is_dir() for path in arguments):
        return given
    wanted = {specs.get(finding.path.partition("/")[0]) for finding in findings}
    return [path for path in given if path in wanted] or given
