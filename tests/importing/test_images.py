"""Imports of modules that take images and have no convolution: a batch norm over positions makes them chains."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from tests.importing.convolved import Convolved
from tests.importing.modules import plan

pytestmark = pytest.mark.torch

TAIL = Convolved("channels", "self.bn = nn.BatchNorm2d(channels)", "return F.relu(self.bn(x) + rest)", "x, rest")


def test_the_end_of_a_residual_block() -> None:
    text = TAIL.imported((16,), (4, 16, 7, 5), (4, 16, 7, 5))
    spec = plan(text).spec
    assert spec.inputs == dict.fromkeys(("x", "rest"), ("batch", "channels", "height", "width"))
    assert [step.op for step in spec.chain] == ["batch_norm", "add", "relu"] and plan(text).chain.spatial == 2


def test_a_sequence() -> None:
    """The norm is not the first step; a number of the channels stays one without the constructor's arguments."""
    made = "self.bn = nn.BatchNorm1d(c, affine=False)\nself.act = nn.PReLU(c)"
    source = Convolved("c", made, "return self.act(self.bn(F.silu(x)))")
    spec = plan(source.imported((16,), (4, 16, 9))).spec
    assert spec.inputs == {"x": ("batch", "c", "width")} and spec.chain[-1].num_parameters == "c"


@pytest.mark.parametrize(
    ("made", "lines", "message"),
    [
        ("self.p = nn.Parameter(torch.ones(7, 5))", "return self.bn(x) + self.p", "'p' varies over positions"),
    ],
)
def test_refusals(made: str, lines: str, message: str) -> None:
    source = Convolved("c", f"self.bn = nn.BatchNorm2d(c)\n{made}", lines)
    with pytest.raises(SpecError, match=message):
        source.imported((16,), (4, 16, 7, 5))


DIMENSION_1 = {
    "softmax": ("", "return (x * 2).softmax(1)", (4, 16, 7, 5)),
    "mean": ("", "return x.exp().mean(1, keepdim=True)", (4, 16, 7)),
    "normalize": ("", "return F.normalize(x.exp())", (4, 16, 7, 5)),
    "prelu": ("self.act = nn.PReLU(c)", "return self.act(x * 2)", (4, 16, 7)),
}


@pytest.mark.parametrize("op", DIMENSION_1)
def test_what_looks_at_dimension_1_makes_images(op: str) -> None:
    made, lines, shape = DIMENSION_1[op]
    text = Convolved("c", made, lines).imported((16,), shape)
    found = plan(text)
    assert found.spec.chain[1].op == op and found.chain.spatial == len(shape) - 2


def test_what_looks_at_the_last_dimension_does_not() -> None:
    text = Convolved("c", "self.p = nn.Parameter(torch.ones(c))", "return (x * self.p).softmax(-1)").imported(
        (16,), (4, 7, 16)
    )
    assert plan(text).chain.spatial == 0
