"""What plans say of `invariant: rows`."""

from __future__ import annotations

import re

import pytest

from fusegen.explain.build import build
from fusegen.explain.choices import Question
from fusegen.explain.invariance import ROWS_OF_LAUNCHES, ROWS_OF_PRODUCTS, invariance
from fusegen.paths import templates_directory
from fusegen.plan.load import plan_document
from fusegen.plan.sizes.chain_sizes import sizes
from fusegen.spec.yaml import parse_yaml

SPEC = """
fusegen: 1
name: promised
about: A norm of rows
invariant: rows
dims: {batch: 64, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [batch, features]}
chain:
  - {op: layer_norm, name: norm}
"""
LINEAR = SPEC.replace("chain:", "chain:\n  - {op: linear, name: fc, out_features: features, bias: false}")


def plan(text: str):
    return plan_document(parse_yaml(text, "promised.yaml", lenient=True))


def test_the_numbers_are_those_of_the_launchers() -> None:
    text = (templates_directory() / "support" / "call.h").read_text(encoding="utf-8")
    (found,) = re.findall(r"kRowsOfLaunches = (\d+), kRowsOfProducts = (\d+);", text)
    assert tuple(map(int, found)) == (ROWS_OF_LAUNCHES, ROWS_OF_PRODUCTS)


@pytest.mark.parametrize(
    ("text", "dtype", "channels", "lines"),
    [(SPEC, 0, 32, 1), (LINEAR, 0, 32, 2), (SPEC, 0, 33, 2), (SPEC, 0, 36, 1), (SPEC, 1, 36, 2)],
)
def test_lines(text: str, dtype: int, channels: int, lines: int) -> None:
    """In 16 bits a vector has eight elements, in float32 four."""
    made = plan(text)
    assert made.modes[dtype].roles["activation"] == ("float32", "bfloat16")[dtype]
    found = invariance(made, made.modes[dtype], sizes(made, 7, channels, channels, 1))
    assert len(found) == lines
    assert all(str(ROWS_OF_LAUNCHES) in line for line in found[:1])


def test_the_report(emulation_cache) -> None:
    report = build(plan(SPEC), Question(rows=5, channels=40), emulation_cache)
    assert list(report.remarks) == ["invariant"]
    assert build(plan(SPEC.replace("invariant: rows", ""))).remarks == {}
