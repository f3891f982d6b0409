"""Imports of norms over several dimensions: what is beside them, sizes that are arguments or not, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusegen.errors import SpecError
from fusegen.importing.module import from_module
from fusegen.plan.load import planned_document
from fusegen.spec.yaml import parse_yaml
from tests.importing.convolved import Convolved

pytestmark = pytest.mark.torch
NORM = "self.norm = nn.LayerNorm((p, f))"
X = (3, 5, 8)


def spec_of(text: str) -> Any:
    return planned_document(parse_yaml(text, "spec.yaml")).spec


def test_a_block_with_layers_and_inputs() -> None:
    source = Convolved(
        "p, f, m",
        f"{NORM}\nself.scale = nn.Parameter(torch.ones(f))\nself.up = nn.Linear(f, m)",
        "y = self.norm(x * self.scale)\nreturn self.up(F.gelu(y * gate + place))",
        "x, gate, place",
    )
    text = source.imported((5, 8, 6), X, (3, 1, 1), (5, 8))
    spec = spec_of(text)
    assert spec.inputs == {"x": ("batch", "p", "f"), "gate": ("batch", 1, 1), "place": ("p", "f")}
    assert [step.op for step in spec.chain] == ["mul", "layer_norm", "mul", "add", "gelu", "linear"]
    assert spec.chain[1].normalized_shape == ("p", "f") and spec.chain[0].shape == ("f",)


def test_two_sizes_that_are_one() -> None:
    """Of a square, neither dimension is told from the other by its size."""
    source = Convolved("p", "self.norm = nn.RMSNorm((p, p), eps=1e-6)", "return torch.tanh(self.norm(x))")
    spec = spec_of(source.imported((6,), (6, 6, 6)))
    assert spec.inputs == {"x": ("batch", "p", "p")} and spec.chain[0].normalized_shape == ("p", "p")


def test_a_shape_that_is_an_argument() -> None:
    made = "self.norm = nn.LayerNorm(shape)\nself.column = nn.Parameter(torch.ones(5, 1))"
    text = Convolved("shape=(5, 8)", made, "return torch.relu(self.norm(x)) * self.column").imported(((5, 8),), X)
    assert "shape: {type: shape, is: [5, 8], default: [5, 8]}" in text and "normalized_shape: shape" in text
    assert spec_of(text).inputs == {"x": ("batch", 5, 8)}


def test_functions_without_a_module() -> None:
    made = "self.weight = nn.Parameter(torch.ones(p, f))"
    source = Convolved("p, f", made, "y = F.layer_norm(x, self.weight.shape, self.weight, eps=1e-3)\nreturn y + x")
    spec = spec_of(source.imported((5, 8), X))
    assert [step.op for step in spec.chain] == ["layer_norm", "mul", "add"]
    assert spec.chain[0].normalized_shape == ("p", "f") and spec.chain[1].shape == ("p", "f")


def test_several_dimensions_of_rows() -> None:
    source = Convolved(
        "h, w", "self.norm = nn.LayerNorm((h, w), elementwise_affine=False)", "return self.norm(x) + s", "x, s"
    )
    spec = spec_of(source.imported((5, 6), (2, 4, 5, 6), (2, 1, 1, 1)))
    assert spec.inputs == {"x": ("batch", "positions", "h", "w"), "s": ("batch", 1, 1, 1)}


def test_sizes_that_are_no_arguments() -> None:
    source = Convolved("p", "self.norm = nn.LayerNorm((p, 2 * p))", "return x + self.norm(x)")
    text = source.imported((4,), (3, 4, 8))
    assert "fixed here: p=4" in text and spec_of(text).inputs == {"x": ("batch", 4, 8)}
    assert spec_of(from_module(source.module(4), [torch.randn(3, 4, 8)])).inputs == {"x": ("batch", 4, 8)}


@pytest.mark.parametrize(
    ("made", "lines", "shape", "code", "words"),
    [
        (NORM, "self.norm(x).relu()", X[1:], "FG707", "layer_norm over the last 2 dimensions"),
        (
            f"{NORM}\nself.q = nn.Parameter(torch.ones(3, 1, 1))",
            "self.norm(x) * self.q",
            X,
            "FG303",
            "over the channels",
        ),
        (NORM, "self.norm(x.transpose(-1, -2)).transpose(-1, -2)", (3, 8, 5), "FG707", "over other dimensions"),
    ],
)
def test_refusals(made: str, lines: str, shape: tuple[int, ...], code: str, words: str) -> None:
    source = Convolved("p, f", made, f"return {lines}")
    with pytest.raises(SpecError) as raised:
        source.imported((5, 8), shape)
    (found,) = raised.value.diagnostics
    assert found.code == code and words in found.message, raised.value
    assert found.location is not None and found.location.line == source.line("return")
