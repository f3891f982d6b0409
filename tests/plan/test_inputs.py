"""Further inputs: what they vary over, what kernels move of them, and what is said of it."""

from __future__ import annotations

import pytest

from fusegen.chain.shape import Broadcast, Shape
from fusegen.explain.text import report
from fusegen.ir.axes import CHANNEL, MATRIX, ROW, SCALAR
from fusegen.plan.load import plan_document
from fusegen.plan.programs.contiguous_layout import AS_SUCH
from fusegen.plan.summary import summary
from fusegen.spec.yaml import parse_yaml

BATCH, POSITIONS, CHANNELS = 4, 16, 64
FILM = """\
fusegen: 1
name: demo
dims: {batch: 4, positions: 16, hidden: 64}
inputs:
  x: [batch, positions, hidden]
  scale: [batch, hidden]
  place: [positions, hidden]
  gate: [batch, 1, 1]
  keep: [batch, positions, 1]
  every: [batch, positions, hidden]
dtypes: [float32]
chain:
  - {op: mul, input: scale, plus: 1}
  - {op: add, input: place}
  - {op: mul, input: gate}
  - {op: mul, mask: keep}
  - {op: masked_fill, mask: every, constant: 0}
"""
FORM = ("batch", "positions", "hidden")


def broadcast(shape, to, **dimensions) -> Broadcast | None:
    return Shape.of(to, **dimensions).broadcast(shape, lambda index, dim: to[index] == dim)


@pytest.mark.parametrize(
    "shape, axes, rows, batched",
    [
        (FORM, MATRIX, None, False),
        (("batch", "positions", 1), ROW, None, False),
        (("hidden",), CHANNEL, None, False),
        ((1, "hidden"), CHANNEL, None, False),
        ((), SCALAR, None, False),
        ((1, 1, 1), SCALAR, None, False),
        (("batch", 1, "hidden"), MATRIX, "first", False),
        (("batch", "hidden"), MATRIX, "first", True),
        (("positions", "hidden"), MATRIX, "last", False),
        ((1, "positions", "hidden"), MATRIX, "last", False),
        (("batch", 1, 1), ROW, "first", False),
        (("positions", 1), ROW, "last", False),
    ],
)
def test_what_an_input_varies_over(shape, axes, rows, batched) -> None:
    found = broadcast(shape, FORM)
    assert (found.axes, found.rows, found.batched) == (axes, rows, batched)
    assert found.is_compact == (rows is not None and axes == MATRIX)


@pytest.mark.parametrize("shape", [("hidden", 1), ("positions",), ("hidden", "batch"), ("batch", *FORM), ("batch", 7)])
def test_what_does_not_broadcast(shape) -> None:
    assert broadcast(shape, FORM) is None


def test_dimensions_between_others_are_neither_the_first_nor_the_last() -> None:
    form = ("a", "b", "c", "channels")
    found = broadcast(("a", 1, "c", "channels"), form)
    assert found.rows == "others" and not found.is_compact


@pytest.mark.parametrize(
    "shape, axes, rows",
    [
        (("batch", "positions", "hidden"), MATRIX, None),
        (("batch", 1, 1), ROW, None),
        (("positions", "hidden"), CHANNEL, None),
        (("positions", 1), CHANNEL, None),
        (("batch", "positions", 1), MATRIX, "others"),
        (("batch", 1, "hidden"), MATRIX, "others"),
    ],
)
def test_channels_of_several_dimensions(shape, axes, rows) -> None:
    found = broadcast(shape, FORM, trailing=2)
    assert (found.axes, found.rows, found.is_compact) == (axes, rows, False)
    assert broadcast(("batch", "hidden"), FORM, trailing=2) is None


@pytest.mark.parametrize(
    "shape, axes, rows",
    [
        (("batch", "hidden", 1, 1), MATRIX, "first"),
        (("hidden", "height", "width"), MATRIX, "last"),
        (("hidden", 1, 1), CHANNEL, None),
        (("batch", 1, "height", "width"), ROW, None),
        (("batch", "hidden", "height", 1), MATRIX, "first"),
        (("batch", "hidden", 1, "width"), MATRIX, "others"),
    ],
)
def test_positions_behind_the_channels(shape, axes, rows) -> None:
    found = broadcast(shape, ("batch", "hidden", "height", "width"), spatial=2)
    assert (found.axes, found.rows) == (axes, rows)


def test_bytes_are_of_the_rows_that_an_input_has() -> None:
    plan = plan_document(parse_yaml(FILM, "demo.yaml"))
    forward, backward = (p for variant in summary(plan)["variants"] for p in variant["programs"])
    rows, full = BATCH * POSITIONS, 4 * BATCH * POSITIONS * CHANNELS
    scale, place, gate = 4 * BATCH * CHANNELS, 4 * POSITIONS * CHANNELS, 4 * rows
    masks = rows + full // 4  # a byte each
    assert forward["floor_bytes"] == full + scale + place + gate + masks + full
    # What has the same rows again and again gets a gradient of full size, which is then summed.
    assert backward["floor_bytes"] == full + full + scale + place + gate + masks + 2 * full + scale + 4 * rows
    text = report(plan)
    assert "the gradient of place is written for every row, and then summed by PyTorch" in text
    assert "the gradient of scale is summed in the last pass: blocks have rows of one sample each" in text
    assert "the gradient of gate is written" not in text


@pytest.mark.parametrize(
    ("shape", "step", "why"),
    [
        ("[batch, hidden, height, width]", "{op: mul, input: r}", None),
        ("[batch, hidden, 1, 1]", "{op: mul, input: r}", None),
        ("[1, hidden, height, width]", "{op: mul, input: r}", None),
        ("[batch, hidden, height, 1]", "{op: mul, input: r}", None),
        ("[hidden, 1, 1]", "{op: mul, input: r}", None),
        ("[1]", "{op: mul, input: r}", None),
        ("[batch, 1, height, width]", "{op: mul, input: r}", "one value for all channels of a position"),
        ("[batch, 1, 1, 1]", "{op: mul, input: r}", "one value for all channels of a position"),
        ("[batch, hidden, height, width]", "{op: mul, mask: r}", "a mask is no tensor of numbers"),
    ],
)
def test_contiguous_tensors_behind_a_convolution_where_an_input_broadcasts(shape, step, why) -> None:
    text = f"""\
fusegen: 1
name: demo
dims: {{batch: 4, hidden: 16, height: 8, width: 8}}
arguments: {{hidden: {{type: dim}}}}
inputs: {{x: [batch, hidden, height, width], r: {shape}}}
dtypes: [float32]
chain:
  - {{op: conv2d, name: conv, out_channels: hidden, kernel_size: 1}}
  - {step}
"""
    plan = plan_document(parse_yaml(text, "demo.yaml"))
    assert all(bool(program.contiguous_layout) == (why is None) for program in plan.programs)
    fewer_rows = shape in ("[batch, hidden, 1, 1]", "[1, hidden, height, width]")
    assert all(not fewer_rows or {"r", "grad_r"}.isdisjoint(program.contiguous_layout) for program in plan.programs)
    assert (why or AS_SUCH) in report(plan)
