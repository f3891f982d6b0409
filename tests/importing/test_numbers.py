"""Numbers that follow from arguments or attributes are not taken for them, whatever the values at hand are."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from fusegen.errors import SpecError
from fusegen.importing.checks.check import reference_class
from fusegen.importing.module import from_module
from fusegen.plan.modules.module import module_of
from tests.importing.modules import CHANNELS, ROWS, WIDTH, Source, chain, imported, plan


def arguments(text: str) -> dict:
    return {name: each.model_dump() for name, each in plan(text).spec.arguments.items()}


# What is made of an argument `a`, which begins as 0.5: lines of the constructor, and of forward.
FROZEN = {
    "two bounds": ("self.a = a", "return y.clamp(-self.a, self.a)"),
    "a bound that nothing reaches": ("self.a = a", "return (y * self.a).clamp(min=-1e4 * abs(self.a))"),
    "a bound in the constructor": ("self.a, self.b = a, -1e4 * abs(a)", "return (y * self.a).clamp(min=self.b)"),
    "what is left to one": ("self.a = a", "return y * self.a + (1 - self.a)"),
    "a quotient in the constructor": ("self.a, self.b = a, 1 / a", "return (y * self.a).tanh() * self.b"),
    "a branch in forward": ("self.a = a", "y = y * self.a\nreturn y + 1 if self.a > 0.25 else y"),
    "a far branch": ("self.a = a", "y = y * self.a\nreturn y if self.a < 1e6 else y + 1"),
    "a branch in the constructor": (
        "self.a = a\nself.act = nn.ReLU() if a < 9 else nn.Tanh()",
        "return self.act(y * a_)",
    ),
    "a branch on what follows": ("self.a = a\nself.k = 3 * a", "y = y * self.a\nreturn y if self.k < 1e6 else -y"),
    "a truth": ("self.a = a", "return y * self.a if self.a else y.tanh()"),
    "a number for none": ("self.a = a or 0.25", "return y * self.a"),
    "a lower bound": ("self.a = max(a, 1e-9)", "return y * self.a"),
    "a table": ("self.a = a\nself.b = {0.5: 2.0}.get(a, 3.0)", "return (y * self.a).tanh() * self.b"),
    "one value alone": (
        "self.act = nn.LeakyReLU(a)",
        "if self.act.negative_slope != 0.5:\n    raise ValueError\nreturn self.act(y)",
    ),
    "the beginning of a parameter": ("self.p = nn.Parameter(torch.full((m,), max(a, 1e-9)))", "return y * self.p"),
    "an exponent": ("self.a = a", "return y.abs() ** (2 + self.a * 2)"),
    "an exponent as it is": ("self.a = a + 2.5 - 2.5", "return (y.abs() + 1) ** self.a"),
    "the beginning of two parameters": (
        "self.p = nn.Parameter(torch.full((m,), a))\nself.q = nn.Parameter(torch.full((m,), -a))",
        "return y * self.p + self.q",
    ),
    "the power of a parameter": ("self.p = nn.Parameter(torch.full((m,), a ** 2 + 0.25))", "return y * self.p"),
}


@pytest.mark.parametrize("name", FROZEN)
def test_an_argument_of_which_more_is_made_is_a_number(name: str) -> None:
    made, lines = FROZEN[name]
    text = imported(Source(made, lines.replace("a_", "self.a"), more="a=0.5"))
    assert "a" not in arguments(text)
    assert "which is fixed here: a=0.5." in text


def test_the_same_attribute_is_a_number_without_a_constructor() -> None:
    for name in ("two bounds", "what is left to one", "a branch in forward", "a far branch", "a truth"):
        made, lines = FROZEN[name]
        module = Source(made, lines, more="a=0.5").module()
        text = from_module(module, [torch.randn(ROWS, WIDTH)])
        assert "a" not in arguments(text) and "name: a" not in text, name
        assert module.a == 0.5
    text = from_module(Source("self.a = 0.5", "return y * self.a").module(), [torch.randn(ROWS, WIDTH)])
    assert "{op: mul, name: a, constant: 0.5}" in text


KEPT = {
    "checked": "assert a > 0\nself.a = a",
    "refused": "if not 0 <= a <= 1:\n    raise ValueError(a)\nself.a = a",
    "with another": "assert n % 2 == 0 and m > a\nself.a = a",
    "converted": "self.a = float(a)",
}


@pytest.mark.parametrize("name", KEPT)
def test_a_check_of_an_argument_is_no_branch(name: str) -> None:
    text = imported(Source(KEPT[name], "return y * self.a", more="a=0.5"))
    assert (
        arguments(text)["a"]["default"] == 0.5 and arguments(text)["n"]["type"] == arguments(text)["m"]["type"] == "dim"
    )
    assert chain(text) == [{"op": "mul", "constant": "a"}]


def test_groups_of_which_more_is_made() -> None:
    source = Source("self.n = nn.GroupNorm(g, m)", "return self.n(y)", more="g=4")
    assert arguments(imported(source))["g"] == {"type": "int", "typical": 4, "default": 4, "keyword": False}
    source = Source("self.n = nn.GroupNorm(g, m)\nself.k = 1 / g", "return self.n(y) * self.k", more="g=4")
    assert "g" not in arguments(imported(source))


# A size of 24, or one that has to be 24 with another argument.
SIZES = {
    "a multiple": "self.fc = nn.Linear(n, (m + 7) // 8 * 8)",
    "a least size": "self.fc = nn.Linear(n, max(m, 24))",
    "a far least size": "self.fc = nn.Linear(n, max(m, 2))",
    "a greatest size": "self.fc = nn.Linear(n, min(m, 10**6))",
    "a branch on a result": "self.act = lambda y: y.tanh() if y.shape[1] < 4000 else y",
    "a branch on a size": "self.act = lambda y: y.tanh() if y.size(-1) ** 2 < 10**7 else y",
    "a factor": "self.act = lambda y: y.tanh() * y.shape[-1] ** -0.5",
    "a factor in the constructor": "self.k = m**-0.5\nself.act = lambda y: y.tanh() / self.k",
    "groups": "self.act = nn.GroupNorm(m // 8, m)",
    "a branch": "self.act = nn.Tanh() if m < 4000 else nn.ReLU()",
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_of_which_more_is_made(name: str) -> None:
    lines = "return self.act(y)" if "act" in SIZES[name] else "return y.tanh()"
    text = imported(Source(SIZES[name], lines))
    assert "m" not in arguments(text) and arguments(text)["n"]["type"] == "dim"
    assert plan(text).spec.chain[0].out_features == CHANNELS
    assert "which is fixed here: m=24." in text


def test_a_size_that_is_fixed_leaves_other_arguments() -> None:
    text = imported(Source("self.k, self.a = m, a", "return y.tanh() * self.a / self.k", more="a=0.5"))
    assert arguments(text).keys() == {"n", "a"}
    assert chain(text)[1:] == [{"op": "mul", "constant": "a"}, {"op": "div", "name": "k", "constant": CHANNELS}]


def test_a_product_of_sizes_is_seen() -> None:
    """Which stays the same where one is doubled and the other halved."""
    text = imported(Source("", "return y / (x.shape[1] * y.shape[1])"))
    assert "which is fixed here: n=16, m=24." in text
    assert chain(text) == [{"op": "div", "constant": WIDTH * CHANNELS}]


def test_arguments_that_the_spec_has_not() -> None:
    """Each is told, and those behind it are taken by name: they would be others by their positions."""
    source = Source(
        "self.a, self.b = a, b", "return y * self.b", more="flag=True, kind='relu', a=0.25, b=0.5, *, c=1.0"
    )
    text = imported(source)
    assert "which is fixed here: flag=True, kind='relu', a=0.25, c=1.0." in text
    assert [(name, each["keyword"]) for name, each in arguments(text).items()] == [
        ("n", False),
        ("m", False),
        ("b", True),
    ]
    with reference_class(module_of(plan(text))) as cls:
        assert cls(16, 24, b=0.75).b == 0.75
        with pytest.raises(TypeError):
            cls(16, 24, True)
        kinds = inspect.signature(cls).parameters
        assert kinds["b"].kind is inspect.Parameter.KEYWORD_ONLY and kinds["b"].default == 0.5


def test_an_argument_that_is_taken_by_name() -> None:
    text = imported(Source("self.b = b", "return y * self.b", more="*, b=0.5"))
    assert arguments(text)["b"]["keyword"] and "fixed here" not in text


class Gathering(nn.Module):
    def __init__(self, n: int, *sizes: int, **more: float) -> None:
        super().__init__()
        self.fc = nn.Linear(n, sizes[0] if sizes else n)
        self.k = more.get("k", 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * self.k


def test_arguments_without_names_of_their_own() -> None:
    for given in ([8, 8], {"n": 8, "k": 2.0}):
        with pytest.raises(SpecError, match=r"FG701.*no names of their own"):
            from_module(Gathering(8, 8), [torch.randn(4, 8)], arguments=given)
    assert "n: {type: dim}" in from_module(Gathering(8), [torch.randn(4, 8)], arguments=[8])
