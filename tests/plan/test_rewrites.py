"""Rewrites that are switched off, in plans whose tensors have parts, positions or ranks."""

from __future__ import annotations

import pytest

from fusegen.ir.rewrites import REWRITES
from fusegen.plan.load import plan_document
from fusegen.plan.modules.plan import Plan
from fusegen.spec.yaml import parse_yaml

SPEC = """\
fusegen: 1
name: demo
dims: {{batch: 8, width: 6, {dims}hidden: 4}}
arguments: {{width: {{type: dim}}, hidden: {{type: dim}}}}
inputs: {{x: [batch, width{height}]}}
rewrites: {{{off}}}
chain:
  - {{{first}}}
  - {{{second}}}
  - {{op: mul, constant: 3}}
  - {{op: add, parameter: shift, shape: {shape}, init: ones}}
  - {{op: relu}}
"""
CHAINS = {
    "parts": ('op: linear, name: fc, out_features: "2 * hidden"', "op: reglu"),
    "positions": ("op: conv1d, name: conv, out_channels: hidden, kernel_size: 1", "op: batch_norm, name: bn"),
    "ranks": ("op: linear, name: fc, out_features: hidden", "op: batch_norm, name: bn, sync: true"),
    "ranks, by a weight of its own": (
        "op: matmul, parameter: weight, shape: [width, hidden], init: randn",
        "op: batch_norm, name: bn, sync: true",
    ),
}


def planned(name: str, off: tuple[str, ...]) -> Plan:
    first, second = CHAINS[name]
    spatial = name == "positions"
    text = SPEC.format(
        dims="height: 5, " if spatial else "",
        height=", height" if spatial else "",
        off=", ".join(f"{each}: false" for each in off),
        first=first,
        second=second,
        shape="[hidden, 1]" if spatial else "[hidden]",
    )
    return plan_document(parse_yaml(text, "demo.yaml"))


@pytest.mark.parametrize("name", CHAINS)
def test_every_program_goes_without(name) -> None:
    usual, without = planned(name, ()), planned(name, tuple(REWRITES))
    assert any(program.rewrites for program in usual.programs)
    assert not any(program.rewrites for program in without.programs)
    for mine, theirs in zip(usual.programs, without.programs, strict=True):
        assert mine.contiguous_layout == theirs.contiguous_layout
        assert {tensor.name for tensor in mine.made} == {tensor.name for tensor in theirs.made}
        assert [tensor.part for tensor in mine.outputs] == [tensor.part for tensor in theirs.outputs]
