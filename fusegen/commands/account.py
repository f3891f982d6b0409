"""What `fusegen build` says of its work: a line for each directory, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fusegen.paths import DEFAULT_OUTPUT
from fusegen.plan.modules.module import ModulePlan


def account(verb: str, paths: Sequence[str], output: Path) -> list[str]:
    """A line for each package with some of the files, for those that packages share, and for those of the directory
    itself; a file that is the only one by its name."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        top, slash, _ = path.partition("/")
        folders.setdefault(top if slash else "", []).append(path)
    lines = []
    for folder, files in folders.items():
        what = f"{output / folder}: {len(files)} files" if len(files) > 1 else f"{output / files[0]}"
        lines.append(f"{verb} {what}")
    return lines


def closing(
    plans: Sequence[ModulePlan], specs: Sequence[Path], output: Path, targets: Sequence[str], *, compiled: bool
) -> list[str]:
    """What is there now, and the next commands. specs, targets: as they were given to the build."""
    names = [name for plan in plans for name in plan.package_names]
    packages = f"{len(names)} package{'s' * (len(names) != 1)}"
    given = shlex.join([*map(str, specs), *([] if output == DEFAULT_OUTPUT else ["--output", str(output)])])
    if not compiled:
        options = "".join(f"--target {target} " for target in targets)
        return [f"{output} has the sources of {packages}. Next:", f"  fusegen build {options}{given}  (compiles them)"]
    return [
        f"{output} has {packages}, compiled. Next:",
        f"  {_use(plans[0], output)}",
        f"  fusegen verify {given}  (on a GPU; with --emulate on the CPU)",
        f"  fusegen check {given}  (in CI, once {output} is committed)",
    ]


def _use(plan: ModulePlan, output: Path) -> str:
    """How Python gets a module: an import where the directory can be one of the current directory's packages."""
    if not output.is_absolute() and output.parts and all(part.isidentifier() for part in output.parts):
        return f"from {'.'.join(output.parts)}.{plan.spec.name} import {plan.spec.class_name}"
    return f'fusegen.load("{plan.spec.name}", "{output}")'
