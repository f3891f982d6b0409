"""A spec as one Python file that needs torch and nvcc alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fusegen.standalone.copied_inputs import inputs_of_file
from fusegen.standalone.inputs import inputs_of_spec
from fusegen.standalone.module import render_standalone
from fusegen.standalone.plan import standalone_plan


def export(
    spec: Path | str,
    *,
    dtypes: Sequence[str] | None = None,
    inputs_from: Path | str | None = None,
    precision: str | None = None,
) -> str:
    """The text of a Python file with the spec's kernels, and with `ModelNew`, a module that calls them.

    spec: a spec file. dtypes: which of its dtypes to compile, such as `float32`; None: all. inputs_from: a Python file
    whose `get_inputs` and `get_init_inputs` are copied; None: they follow from the spec's sizes. precision: of float32
    products, `ieee` or `fp32_split`; None: the spec's. Raises SpecError.
    """
    plan = standalone_plan(spec, dtypes, precision)
    inputs = inputs_of_spec(plan) if inputs_from is None else inputs_of_file(Path(inputs_from))
    return render_standalone(plan, inputs)
