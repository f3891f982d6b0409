"""Example inputs and arguments that an import is called with, and inputs behind the first."""

from __future__ import annotations

import pytest
import torch

from fusegen.errors import SpecError
from fusegen.importing.module import from_module
from tests.importing.modules import CHANNELS, ROWS, WIDTH, Source, chain, imported

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
    for shape in ((ROWS, 1), (CHANNELS,), ()):
        with pytest.raises(SpecError) as raised:
            imported(source, (ROWS, WIDTH), shape)
        (found,) = raised.value.diagnostics
        assert found.code == "FG707" and "'scale' has not the shape" in found.message
        assert found.location is not None and found.location.line == source.line("y * scale")


def test_a_further_input_is_taken_as_it_is() -> None:
    with pytest.raises(SpecError, match=r"model.py:8:9: error\[FG707\]: an operand that is computed beside the chain"):
        imported(Source("", "return y * (2 + scale)", "x, scale"), (ROWS, WIDTH), (ROWS, CHANNELS))


def test_a_factor_of_one_and_an_input() -> None:
    """As two steps, of which each has an operand."""
    made = "self.norm = nn.LayerNorm(m, elementwise_affine=False)"
    text = imported(
        Source(made, "y = self.norm(y)\nreturn y * (1 + scale) + shift", "x, scale, shift"),
        *((ROWS, WIDTH), (ROWS, CHANNELS), (ROWS, CHANNELS)),
    )
    assert chain(text)[1:] == [
        {"op": "mul", "input": "scale"},
        {"op": "add", "value": "y"},
        {"op": "add", "input": "shift"},
    ]


def test_a_factor_of_one_and_a_parameter() -> None:
    weight = {"op": "mul", "parameter": "w", "shape": ["m"], "init": "zeros"}
    for result in ("y * (1 + self.w)", "(self.w + 1.0) * y", "y * (1 + self.w.view(1, -1))"):
        text = imported(Source("self.w = nn.Parameter(torch.zeros(m))", f"return {result}"))
        assert chain(text) == [weight, {"op": "add", "value": "y"}]
