"""Example inputs and arguments that an import is called with, and inputs behind the first."""

from __future__ import annotations

import pytest
import torch

from fusegen.errors import SpecError
from fusegen.importing.module import from_module
from tests.importing.modules import CHANNELS, ROWS, WIDTH, Source, imported

pytestmark = pytest.mark.torch


def test_example_inputs_have_rows_and_channels() -> None:
    module = Source("", "return y.tanh()").module()
    for shape in ((WIDTH,), (1, WIDTH)):
        with pytest.raises(SpecError, match="two dimensions of 2 or more"):
            from_module(module, [torch.randn(shape)], arguments=[WIDTH, CHANNELS])


def test_example_inputs_are_tensors() -> None:
    for inputs in ([], [3.0], [None]):
        with pytest.raises(SpecError, match=r"FG701.*no tensors"):
            from_module(Source("", "return y.tanh()").module(), inputs)


def test_arguments_that_the_constructor_does_not_take() -> None:
    module = Source("", "return y.tanh()").module()
    with pytest.raises(SpecError, match=r"FG701.*cannot be called.*too many positional"):
        from_module(module, [torch.randn(4, WIDTH)], arguments=[1, 2, 3, 4])


def test_a_further_input_has_the_shape_of_the_running_value() -> None:
    source = Source("", "return y * scale", "x, scale")
    assert "{op: mul, input: scale}" in imported(source, (ROWS, WIDTH), (ROWS, CHANNELS))


@pytest.mark.parametrize(
    "shape, written",
    [
        ((ROWS, 1), "[batch, 1]"),
        ((CHANNELS,), "[m]"),
        ((1, CHANNELS), "[1, m]"),
        ((1, 1), "[1, 1]"),
        ((1,), "[1]"),
        ((), "[]"),
    ],
    ids=str,
)
def test_a_further_input_that_broadcasts(shape, written) -> None:
    found = imported(Source("", "return (y * scale).tanh()", "x, scale"), (ROWS, WIDTH), shape)
    assert "{op: mul, input: scale}" in found and f"scale: {written}" in found


def test_a_further_input_that_is_moved_to_other_dimensions() -> None:
    source = Source("", "return y * scale[:, None]", "x, scale")
    with pytest.raises(SpecError, match="FG70[17]"):
        imported(source, (ROWS, WIDTH), (ROWS,))


def test_operands_that_are_scaled_and_moved() -> None:
    made, shapes = "self.w = nn.Parameter(torch.zeros(m))", ((ROWS, WIDTH), (ROWS, 1))
    found = imported(Source(made, "return y * (1 + self.w) + (3 - 2 * scale)", "x, scale"), *shapes)
    assert "{op: mul, parameter: w, shape: [m], init: zeros, plus: 1}" in found
    assert "{op: add, input: scale, times: -2.0, plus: 3}" in found


def test_an_operand_that_is_computed_begins_with_its_input() -> None:
    found = imported(Source("", "return y * scale.exp()", "x, scale"), (ROWS, WIDTH), (ROWS, CHANNELS))
    assert "{op: exp, from: scale}" in found and "{op: mul, value: y}" in found
