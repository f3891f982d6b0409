"""Chains with more norms, functions and inputs than any real one: their C++ compiles as that of short ones does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fusegen.emulate.library import INCLUDE
from fusegen.plan.launches.kinds import Stays
from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from fusegen.plan.modules.refusals import MAX_FULL_TENSORS
from fusegen.plan.programs.passes import Passes
from fusegen.plan.programs.register_cache import MOST_CACHED
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from tests.plan.planning import LINEAR, planned

ROWS = "op: rms_norm, name: n{i}"


def compiles(plan: Plan, root: Path) -> None:
    """g++ finds nothing wrong with kernels.cu in one dtype mode."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    write_files(render_all([module_of(plan)]), root / "generated")
    source = root / "generated" / plan.spec.name / "kernels.cu"
    flags = ["-std=c++17", "-fsyntax-only", "-Wno-unknown-pragmas", "-DFUSEGEN_MODES=1u", f"-I{INCLUDE}"]
    done = subprocess.run(["g++", *flags, "-x", "c++", str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]


def test_twenty_norms(tmp_path: Path) -> None:
    plan = planned(tmp_path, LINEAR, *(ROWS.format(i=i) for i in range(20)))
    assert [len(Passes(program).passes) for program in plan.programs] == [21, 21]
    compiles(plan, tmp_path)


def test_more_costly_values_than_a_mask_has_bits(tmp_path: Path) -> None:
    steps = (step.format(i=i) for i in range(10) for step in (ROWS, "op: silu", "op: mish", "op: gelu"))
    plan = planned(tmp_path, LINEAR, *steps)
    cached = set().union(*Passes(plan.programs[-1]).cached[Stays.REGISTERS])
    assert len(cached) == MOST_CACHED
    compiles(plan, tmp_path)


def test_as_many_inputs_as_are_allowed(tmp_path: Path) -> None:
    names = [f"r{i}" for i in range(MAX_FULL_TENSORS)]
    inputs = "".join(f", {name}: [batch, hidden]" for name in names)
    plan = planned(tmp_path, LINEAR, *(f"op: mul, input: {name}" for name in names), inputs=inputs)
    assert len(plan.programs[-1].full_outputs) == MAX_FULL_TENSORS + 1
    compiles(plan, tmp_path)
