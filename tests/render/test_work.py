"""What launch configurations are chosen by."""

from __future__ import annotations

import pytest

from fusegen.plan.programs.passes import Passes
from fusegen.render.programs.work import work
from tests.plan.planning import LINEAR, planned


@pytest.mark.parametrize("op", ["sub", "add"])
def test_a_row_kernel_that_only_sums_what_it_reads_has_a_value(op, tmp_path) -> None:
    """Zero of them says that a program has no row kernel: its constants would not be written."""
    plan = planned(tmp_path, LINEAR, f"op: {op}, input: z", inputs=", z: [batch, 1]")
    program = plan.variants[0].backward
    assert any(kernel.kind == "row" for kernel in program.kernels)
    assert work(program, Passes(program)).row_values == 1
