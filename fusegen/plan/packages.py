"""Plans of specs that become the packages of one output directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from fusegen.errors import Diagnostic, SpecError, quote
from fusegen.plan.composition import Planned
from fusegen.plan.load import planned_files
from fusegen.spec.yaml import read_yaml


def plan_packages(paths: Iterable[Path]) -> list[Planned]:
    """As planned_files, for specs each of which is in a file of its own name: generated text says `specs/<name>.yaml`.

    paths: no file twice. Raises SpecError with the diagnostics of all of them.
    """
    files = list(paths)
    diagnostics: list[Diagnostic] = []
    try:
        plans = planned_files(files)
        if all(plan.spec.name == path.stem for plan, path in zip(plans, files, strict=True)):
            return plans
    except SpecError as error:
        diagnostics += error.diagnostics
    # Read again, for the place of each name: a spec may have other errors, too.
    raise SpecError([*diagnostics, *(each for path in files for each in _misnamed(path))])


def _misnamed(path: Path) -> Iterator[Diagnostic]:
    try:
        document = read_yaml(path, lenient=True)
    except SpecError:
        return
    name = document.data.get("name")
    if isinstance(name, str) and name != path.stem:
        message = f"the spec {quote(name)} is in the file {quote(path.name)}"
        hint = "the two names have to be the same, but for .yaml"
        yield document.diagnostic("FG504", message, ("name",), hint=hint)
