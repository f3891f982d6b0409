"""The checks of `fusegen verify` on an emulated package of any planned spec."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fusegen.emulate.package import emulate_package
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


def compared(suite: Suite, shapes: Sequence[tuple[int, ...]]) -> tuple[list[Finding], list[str]]:
    """Results and every gradient in all modes: what was found, and what is wrong of it."""
    found = [finding for mode in suite.modes() for finding in suite.numerics(mode, shapes)]
    wrong = [f"{each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in found if not each.item.ok]
    return found, wrong
