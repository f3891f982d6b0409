"""Imports of modules that begin with a convolution: the specs that were written by hand, options, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusegen.errors import SpecError
from fusegen.importing.checks.rows import OTHER_DIMENSIONS
from fusegen.importing.module import from_module
from fusegen.spec.yaml import parse_yaml
from tests.chains.convolutions import EXPRESSIBLE
from tests.importing.convolved import ORIGINALS, Convolved
from tests.importing.modules import plan

pytestmark = pytest.mark.torch
SHAPE = (2, 4, 6, 6)


def first_step(text: str) -> dict[str, Any]:
    return dict(parse_yaml(text, "spec.yaml").data["chain"][0])


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_the_spec_is_that_written_by_hand(name: str) -> None:
    written = EXPRESSIBLE[name]
    shapes = [(4, written.channels[0], *written.typical[0])]
    shapes += [(4, written.channels[-1], *written.typical[1])] if written.further else []
    kernel_size = (3,) * len(written.constructed[2:3])  # which these specs have as its typical value
    arguments = (*written.constructed[:2], *kernel_size, *written.constructed[3:])
    found = plan(ORIGINALS[name].imported(arguments, *shapes, name=name)).spec
    other = {"about_", "dtypes", "targets"}
    assert found.model_dump(exclude=other) == plan(written.spec(name)).spec.model_dump(exclude=other)


def test_every_option_is_an_argument() -> None:
    source = Convolved(
        "c, m, k, s, p, d, g",
        "self.conv = nn.Conv2d(c, m, (k, 3), stride=(1, s), padding=p, dilation=d, groups=g, bias=False)",
        "return torch.relu(self.conv(x))",
    )
    text = source.imported((4, 8, 2, 2, 1, 1, 1), (2, 4, 8, 9))
    assert first_step(text) == {
        **{"op": "conv2d", "name": "conv", "out_channels": "m", "kernel_size": ["k", 3], "stride": [1, "s"]},
        **{"padding": "p", "dilation": "d", "groups": "g", "bias": False},
    }
    kinds = {name: each.type for name, each in plan(text).spec.arguments.items()}
    assert kinds == {"c": "dim", "m": "dim", **dict.fromkeys("kspdg", "int")}


def test_edges_that_are_repeated() -> None:
    for mode in ("circular", "reflect", "replicate"):
        made = f"self.conv = nn.Conv1d(c, c, 3, padding=1, padding_mode='{mode}')"
        text = Convolved("c", made, "return torch.tanh(self.conv(x))").imported((4,), (2, 4, 9))
        assert first_step(text)["padding_mode"] == mode and first_step(text)["padding"] == 1


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ("nn.Conv2d(c, 8, k, padding=k // 2)", {"kernel_size": 3, "padding": 1}),
        ("nn.Conv2d(c, 8, max(k, 3))", {"kernel_size": 3}),
        ("nn.Conv2d(c, 8, 3 if k > 2 else 1)", {"kernel_size": 3}),
        ("nn.Conv2d(c, k * 2, k)", {"kernel_size": 3, "out_channels": 6}),
    ],
)
def test_an_option_from_which_more_follows_is_fixed(made: str, kept: dict[str, Any]) -> None:
    text = Convolved("c, k", f"self.conv = {made}", "return torch.relu(self.conv(x))").imported((4, 3), SHAPE)
    assert "fixed here: k=3" in text and kept.items() <= first_step(text).items()


@pytest.mark.parametrize(("groups", "kept"), [("c", "c"), ("c // 2", 2), ("max(c, 4)", 4)])
def test_groups_that_follow_from_channels(groups: str, kept: str | int) -> None:
    """A group for each channel stays that; another number fixes the channels."""
    source = Convolved("c", f"self.conv = nn.Conv2d(c, c, 3, groups={groups})", "return torch.relu(self.conv(x))")
    text = source.imported((4,), SHAPE)
    assert first_step(text)["groups"] == kept and ("fixed here: c=4" in text) == (kept != "c")


def test_without_the_constructor_options_are_numbers() -> None:
    source = Convolved("c, k", "self.conv = nn.ConvTranspose1d(c, 6, k, stride=k)", "return self.conv(x).relu()")
    text = from_module(source.module(4, 3), [torch.randn(2, 4, 5)])
    step = {"op": "conv_transpose1d", "name": "conv", "out_channels": 6, "kernel_size": 3, "stride": 3}
    assert first_step(text) == step
    assert plan(text).spec.dims == {"batch": 2, "width": 5}


def test_large_examples_are_compared_at_small_sizes() -> None:
    """This one would take a minute and 16 GB as it is."""
    text = ORIGINALS["batch_norm_scaling"].imported((8, 64, 3, 2.0), (128, 8, 128, 128))
    sizes = {"batch": 128, "in_channels": 8, "height": 128, "width": 128, "out_channels": 64}
    assert plan(text).spec.dims == sizes


def test_channels_last() -> None:
    module = ORIGINALS["batch_norm_scaling"].module(4, 8, 3, 2.0).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(SHAPE).contiguous(memory_format=torch.channels_last)
    text = from_module(module, [x], arguments=[4, 8, 3, 2.0])
    assert text == ORIGINALS["batch_norm_scaling"].imported((4, 8, 3, 2.0), SHAPE)


def test_an_option_that_is_nothing_is_an_argument() -> None:
    source = Convolved("c, p=0", "self.conv = nn.Conv2d(c, c, 3, padding=p)", "return torch.relu(self.conv(x))")
    text = source.imported((4,), SHAPE)
    assert first_step(text)["padding"] == "p" and "p: {type: int, typical: 0, default: 0}" in text


def test_a_call_without_a_batch_is_told_of() -> None:
    remark = OTHER_DIMENSIONS.format(4)
    for result, told in (("F.softmax(self.conv(x), dim=-3)", True), ("F.softmax(self.conv(x), dim=1)", False)):
        assert (remark in Convolved("c", _CONV, f"return {result}").imported((4,), SHAPE)) == told


def test_channels_are_divided() -> None:
    source = Convolved(
        "c, m", "self.conv = nn.Conv2d(c, 2 * m, 1)", "a, b = self.conv(x).chunk(2, dim=1)\nreturn a * torch.sigmoid(b)"
    )
    text = source.imported((4, 6), SHAPE)
    assert first_step(text)["out_channels"] == "2 * m" and "{op: chunk, parts: [a, b], running: b}" in text


_CONV = "self.conv = nn.Conv2d(c, c, 3)"
# Name -> what is made behind the convolution, the result of its result y, code, words of the message, of the line.
REFUSED: dict[str, tuple[str, str, str, str, str]] = {
    "a sum of all": ("", "y.sum((0, 2, 3))", "FG703", "sum over other dimensions", "y.sum"),
    "rows elsewhere": ("", "y.amin(1).unsqueeze(-1)", "FG705", "[batch, positions, positions, 1]", "y.amin"),
    "values of positions": (
        "self.p = nn.Parameter(torch.ones(c, 4, 4))",
        "y * self.p",
        "FG706",
        "varies over positions",
        "y *",
    ),
    "a parameter in another shape": (
        *("self.p = nn.Parameter(torch.ones(c, 1))", "y * self.p.view(1, -1, 1, 1)"),
        *("FG706", "another shape", "self.p.view"),
    ),
    "a parameter along positions": (
        *("self.p = nn.Parameter(torch.ones(4))", "y * self.p", "FG706", "varies over positions", "y * self.p"),
    ),
    "the same one": ("", "self.conv(y)", "FG305", "two steps would own the attribute 'conv'", "self.conv(y)"),
    "a linear layer": ("self.l = nn.Linear(4, 4)", "self.l(y)", "FG707", "linear over", "self.l(y)"),
    "other tensors": ("", "F.conv2d(x, self.conv.weight) + y", "FG706", "no nn.Conv2d holds", "F.conv2d"),
    "an unused parameter": ("self.b = nn.Parameter(torch.ones(c))", "y.relu()", "FG706", "not use 'b'", "def forward"),
    "another order": ("", "y.permute(0, 2, 3, 1)", "FG705", "another shape", "y.permute"),
    "by positions": ("", "y * 2 if y.shape[3] > 5 else y", "FG702", "sizes of inputs", "y.shape[3]"),
    "one batch": ("", "y * 2 if int(x.shape[0]) in {2, 4} else y", "FG705", "works for one batch", "def forward"),
    "a number of positions": ("", "y / y.shape[2]", "FG703", "a size that changes", "y.shape[2]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    made, result, code, words, line = REFUSED[name]
    check_refused(Convolved("c", f"{_CONV}\n{made}", f"y = self.conv(x)\nreturn {result}"), SHAPE, code, words, line)


@pytest.mark.parametrize(
    ("made", "result", "shape", "code", "words"),
    [
        (_CONV, "self.conv(x.transpose(2, 3))", SHAPE, "FG707", "conv2d of a value that lies otherwise"),
        (_CONV, "self.conv(x)", SHAPE[1:], "FG707", "the module has a convolution"),
        (
            *("self.t = nn.ConvTranspose2d(c, c, 3, stride=2)", "self.t(x, output_size=(14, 14))", SHAPE),
            *("FG703", "another output_padding"),
        ),
    ],
)
def test_refused_convolutions(made: str, result: str, shape: tuple[int, ...], code: str, words: str) -> None:
    check_refused(Convolved("c", made, f"return {result}"), shape, code, words, "return")


def test_a_layer_of_a_sequence() -> None:
    made = "self.s = nn.Sequential(nn.Conv2d(c, c, 3, bias=False), nn.BatchNorm2d(c), nn.ReLU())"
    text = Convolved("c", made, "return self.s(x)").imported((4,), SHAPE)
    assert "{op: conv2d, name: s_0" in text and "\nstate_dict:\n  s_0: s.0\n  s_1: s.1\n" in text


def check_refused(source: Convolved, shape: tuple[int, ...], code: str, words: str, line: str) -> None:
    with pytest.raises(SpecError) as raised:
        source.imported((4,), shape)
    (found,) = raised.value.diagnostics
    assert found.code == code and words in found.message, raised.value
    assert found.location is not None and found.location.line == source.line(line)


def test_a_further_input_of_another_shape() -> None:
    source = Convolved("c", _CONV, "return self.conv(x) * other", "x, other")
    wrong = "the input 'other' has not the shape"
    for shape, words in (((1, 4, 1, 1), wrong), ((4, 4), "mul of values that lie differently"), ((4, 1, 1), wrong)):
        with pytest.raises(SpecError, match=rf"model.py:7:9: error\[FG707\]: {words}"):
            source.imported((4,), SHAPE, shape)
