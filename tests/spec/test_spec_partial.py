"""What is read of a spec that has mistakes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from spec_steps import Add, BatchNorm, Gelu, Linear, Silu

from fusegen.spec.model import MAX_NAMES, MAX_STEPS
from fusegen.spec.partial import PartialSpec, read_partly
from fusegen.spec.yaml import parse_yaml

STEPS = (Linear, BatchNorm, Silu, Gelu, Add)
TEXT = """\
fusegen: 1
dims: {batch: 16, width: -1, 2x: 3}
arguments: {width: {type: dim}, eps: {type: flaot}, by: {type: float, defualt: 1}}
inputs: {x: [batch, width], z: [batch, [1]]}
targets: [sm_90, 3]
chain:
  - {op: linear, name: gemm, out_features: 4, bais: false}
  - {op: swish, save: [1]}
  - {op: batch_norm, name: 3}
  - {op: gelu, approximate: .nan}
  - {op: relu}
  - relu
"""


def partly(text: str = TEXT) -> PartialSpec:
    return read_partly(STEPS, parse_yaml(text, "f.yaml", lenient=True))


def test_what_can_be_read() -> None:
    spec = partly()
    assert spec.dims == {"batch": 16, "width": None, "2x": 3}
    assert {name: argument and argument.type for name, argument in spec.arguments.items()} == {
        "width": "dim", "eps": None, "by": None,
    }  # fmt: skip
    assert spec.inputs == {"x": ("batch", "width"), "z": None}
    assert spec.targets == ("sm_90", "")
    assert [step and step.op for step in spec.chain] == ["linear", "swish", None, "gelu", None, None]


def test_what_cannot() -> None:
    expected: set[Any] = {("dims", "width"), ("arguments", "eps"), ("arguments", "by"), ("inputs", "z")}
    expected |= {("chain", 0, "bais"), ("chain", 1, "save"), ("chain", 2), ("chain", 3, "approximate"), ("chain", 4)}
    assert partly().unreadable == expected | {("chain", 5)}


def test_sections_of_another_type() -> None:
    spec = partly("dims: [1]\narguments: 3\ninputs: ~\nchain: {op: swish}\n")
    assert spec.unreadable == {("dims",), ("arguments",), ("inputs",), ("chain",)}
    assert (spec.dims, spec.arguments, spec.inputs, spec.chain, spec.targets) == ({}, {}, {}, (), ())


def test_a_section_may_be_missing_or_misspelt() -> None:
    assert partly("chain: []\n").unreadable == set()
    assert partly("chain: []\nargument: {}\n").unreadable == {("dims",), ("arguments",), ("inputs",)}


def test_more_than_a_spec_may_have_is_not_read() -> None:
    names = ", ".join(f"n{index}: 1" for index in range(MAX_NAMES + 5))
    spec = partly("dims: {" + names + "}\nchain:\n" + "  - {op: swish}\n" * (MAX_STEPS + 5))
    assert len(spec.dims) == MAX_NAMES and len(spec.chain) == MAX_STEPS
    assert spec.unreadable == {("dims",), ("chain",)}
