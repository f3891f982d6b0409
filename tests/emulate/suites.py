"""The checks of `fusegen verify` on an emulated package of any planned spec."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fusegen.emulate.package import emulate_package
from fusegen.plan.load import planned_file
from fusegen.plan.modules.module import ModulePlan
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.verify.judgement.findings import Finding
from fusegen.verify.subjects.subject import Subject
from fusegen.verify.suite import Suite


def emulated_suite(plan: ModulePlan, root: Path, cache: Path) -> Suite:
    """Beside the chain in PyTorch's operators, with few sizes. The package is written below `root`."""
    write_files(render_all([plan]), root)
    package = emulate_package(root / plan.spec.name, cache=cache, checked=False)
    return Suite(Subject(plan, package, "cpu"), full=False)


def suites_of(chains: Mapping[str, str], root: Path, cache: Path) -> Callable[[str], Suite]:
    """By the name of a chain in float32 its suite, of a package that is emulated when it is first wanted. chains: of
    each the lines of its spec from `dims` on."""

    @functools.cache
    def suite(name: str) -> Suite:
        path = root / f"{name}.yaml"
        path.write_text(f"fusegen: 1\nname: {name}\ndtypes: [float32]\n{chains[name]}", encoding="utf-8")
        return emulated_suite(planned_file(path), root / "made", cache)

    return suite


def compared(suite: Suite, shapes: Sequence[tuple[int, ...]]) -> tuple[list[Finding], list[str]]:
    """Results and every gradient in all modes: what was found, and what is wrong of it."""
    found = [finding for mode in suite.modes() for finding in suite.numerics(mode, shapes)]
    wrong = [f"{each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in found if not each.item.ok]
    return found, wrong
