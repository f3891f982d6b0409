"""The types over which kernels are templates: no instance differs from another in a type that it does not use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.plan.planning import LINEAR
from tests.render.rendering import kernels

LEAKY = "op: leaky_relu"
BATCH, LAYER = "op: batch_norm, name: bn", "op: layer_norm, name: ln"
# Steps, and the types of each kernel.
CHAINS = {
    # The bias is read in float32 alone, where it has the dtype of activations.
    "no_parameter_but_the_bias": (
        (LINEAR, LEAKY),
        {"forward": "T Out", "backward": "T Out", "backward_column_sums": "Acc Param"},
    ),
    "batch_norm": (
        (BATCH,),
        {
            "train_forward_column": "T Out Param",
            "train_forward_panel": "T Out Param",
            "train_forward_partials": "T",
            "train_forward_finalise": "Acc Param",
            "train_forward_apply": "T Out Param",
            "train_backward_column": "T Out Param",
            "train_backward_panel": "T Out Param",
            "train_backward_partials": "T Out",
            "train_backward_finalise": "Acc Param",
            "train_backward_apply": "T Out Param",
            "eval_forward": "T Out Param",
            "eval_backward": "T Out Param",
            "eval_backward_column_sums": "Acc Param",
        },
    ),
    # The element-wise function's error is that of the result's dtype.
    "statistics_behind_a_function": (
        ("op: gelu", "op: layer_norm, name: ln, affine: false"),
        {
            "forward_row": "T Out",
            "forward_segments": "T Out",
            "forward_apply": "T Out",
            "backward_row": "T Out",
            "backward_segments": "T Out",
            "backward_apply": "T Out",
        },
    ),
    "statistics_of_the_input": (
        (LINEAR, LAYER),
        {
            "forward_row": "T Out Param",
            "forward_segments": "T",
            "forward_apply": "T Out Param",
            "backward_row": "T Out Param",
            "backward_column_sums": "Acc Param",
            "backward_segments": "T Out Param",
            "backward_apply": "T Out Param",
        },
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_types_of_kernels(name: str, tmp_path: Path) -> None:
    steps, expected = CHAINS[name]
    text = kernels(tmp_path, steps)
    declared = re.findall(r"template <([^>]*)>\s*__global__ void\s+__launch_bounds__\(.*\)\s(\w+)\(", text)
    assert {kernel: " ".join(re.findall(r"typename (\w+)", types)) for types, kernel in declared} == expected
    launched = dict(
        re.findall(r"(?:launch(?:_in_order)?\(|auto\* kernel = )(\w+)<((?:[A-Z]\w*(?:, (?=[A-Z]))?)+)", text)
    )
    assert {kernel: types.replace(",", "") for kernel, types in launched.items()} == expected
