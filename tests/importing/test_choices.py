"""What chooses by comparing values, and losses of each element: read as the ops of a chain that compute the same."""

from __future__ import annotations

import re

import pytest

from fusegen.errors import SpecError
from tests.importing.modules import CHANNELS, ROWS, WIDTH, Source, chain, imported

# What is written behind the layer, and the steps that it is. The comparisons of an import hold for the rest.
CHOICES = {
    "torch.where(y > 0, y, torch.zeros_like(y))": {"op": "relu"},
    "torch.where(y > 0.5, y, -1.0)": {"op": "threshold", "threshold": 0.5, "value": -1.0},
    "torch.where(y > 0, y, 0.2 * y)": {"op": "leaky_relu", "negative_slope": 0.2},
    "torch.where(y <= 0, y * 0.2, y)": {"op": "leaky_relu", "negative_slope": 0.2},
    "torch.where(y > 0, y, 0.7 * (torch.exp(y) - 1))": {"op": "elu", "alpha": 0.7},
    "torch.where(0 < y, y, torch.expm1(y))": {"op": "elu"},
    "torch.where(y.abs() > 0.3, y, 0.0)": {"op": "hardshrink", "lambd": 0.3},
    "y.masked_fill(y < -0.4, -0.4)": {"op": "clamp", "min": -0.4},
    "torch.where(y >= -0.4, y, -0.4)": {"op": "clamp", "min": -0.4},
    "torch.where(y > 1.0, torch.ones_like(y), y)": {"op": "clamp", "max": 1.0},
    "torch.clamp(y, min=torch.tensor(0.25))": {"op": "clamp", "min": 0.25},
}
# Other choices: of these, gradients differ at the limit, or no op makes them.
REFUSED = (
    "torch.where(y >= 0, y, 0.2 * y)",
    "torch.where(y >= 1.0, torch.ones_like(y), y)",
    "torch.where(y > 0, y, y * y)",
    "torch.where(y > y * y, y, 0.0)",
    "torch.where(y > 0.5, y, 0.2 * y)",
    "y * (y > 0).float()",
)
LOSSES = {
    "F.mse_loss(y, t, reduction='none')": ["sub", "square"],
    "F.l1_loss(y, t, reduction='none')": ["sub", "abs"],
    "F.kl_div(t, y, reduction='none', log_target=True)": ["exp", "sub", "mul"],
    "F.binary_cross_entropy_with_logits(y, t, reduction='none')": ["mul", "logsigmoid", "sub"],
    "F.huber_loss(y, t, reduction='none', delta=0.6)": ["sub", "abs", "clamp", "mul", "sub", "mul"],
    "F.smooth_l1_loss(y, t, reduction='none', beta=0.6)": ["sub", "abs", "clamp", "mul", "sub", "mul", "div"],
    "F.smooth_l1_loss(y, t, reduction='none', beta=0.0)": ["sub", "abs"],
    "torch.addcmul(t, y, y, value=0.5)": ["mul", "mul", "add"],
}
OF_ELEMENTS = {
    "F.binary_cross_entropy_with_logits(y, t)": "binary_cross_entropy_with_logits that reduces",
    "F.binary_cross_entropy_with_logits(y, t, weight=torch.tensor(2.0), reduction='none')": "has weights",
    "F.smooth_l1_loss(y, t)": "smooth_l1_loss that reduces",
    "F.mse_loss(y, t)": "'mse_loss' is not supported",
    "F.cosine_similarity(y, t)": "'cosine_similarity' is not supported: its norms have a gradient",
}
SHAPES = ((ROWS, WIDTH), (ROWS, CHANNELS))


@pytest.mark.parametrize("text", CHOICES)
def test_a_choice_by_a_comparison_is_the_op_that_makes_it(text: str) -> None:
    assert chain(imported(Source("", f"return {text} * 2")))[:-1] == [CHOICES[text]]


def test_the_number_of_a_choice_stays_an_argument() -> None:
    source = Source("self.slope = slope", "return torch.where(y > 0, y, self.slope * y)", more="slope=0.3")
    assert chain(imported(source)) == [{"op": "leaky_relu", "negative_slope": "slope"}]


@pytest.mark.parametrize("text", REFUSED)
def test_other_choices_are_refused_by_their_line(text: str) -> None:
    with pytest.raises(SpecError, match="FG703.*a choice by values, as no op of a chain makes it"):
        imported(Source("", f"return {text}"))


@pytest.mark.parametrize("text", LOSSES)
def test_what_pytorch_computes_by_element(text: str) -> None:
    found = chain(imported(Source("", f"return {text}", inputs="x, t"), *SHAPES))
    assert [step["op"] for step in found] == LOSSES[text]


@pytest.mark.parametrize("text", OF_ELEMENTS)
def test_losses_that_are_none_by_element_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match=re.escape(OF_ELEMENTS[text])):
        imported(Source("", f"return {text}", inputs="x, t"), *SHAPES)
