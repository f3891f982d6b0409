"""What launchers are told of their row kernels, by which they choose a schedule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusegen.render.package import render_all
from tests.plan.planning import LINEAR, planned

LAYER = "op: layer_norm, name: ln"
# Steps, and of the forward and of the backward row kernel: column sums, constants of a column, tensors read again.
CHAINS = {
    "plain": (("op: layer_norm, name: ln, affine: false",), [("false", 0, 1), ("false", 0, 2)]),
    "rms": (("op: rms_norm, name: rms",), [("false", 1, 1), ("true", 1, 2)]),
    "layer": ((LAYER,), [("false", 2, 1), ("true", 1, 2)]),
    "bias_in_front": ((LINEAR, LAYER), [("false", 3, 1), ("true", 2, 2)]),
    # Only one row kernel: what comes before it runs in both schedules alike, which is no second read.
    "two_lengths": (("op: group_norm, name: gn, num_groups: 4", LAYER), [("false", 4, 1), ("true", 3, 2)]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_row_work(name: str, tmp_path: Path) -> None:
    steps, expected = CHAINS[name]
    files = render_all([planned(tmp_path, *steps)])
    text = next(text for path, text in files.items() if path.endswith("kernels.cu"))
    found = re.findall(r"constexpr RowWork kWork\{(\w+), \d+, (\d+), (\d+)\};", text)
    assert [(sums, int(constants), int(again)) for sums, constants, again in found] == expected
