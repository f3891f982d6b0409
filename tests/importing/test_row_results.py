"""Results of one value a row: [rows, 1], and [rows] where the last reduction drops the dimension."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fusegen.errors import SpecError
from fusegen.importing.module import from_module
from fusegen.plan.load import planned_document
from fusegen.spec.yaml import parse_yaml
from tests.importing.modules import Source, chain, imported, plan

pytestmark = pytest.mark.torch

WRITTEN = {
    "return y.sum(-1, keepdim=True)": [{"op": "sum", "keepdim": True}],
    "return y.sum(-1)": [{"op": "sum", "keepdim": False}],
    "return torch.tanh(torch.logsumexp(y, 1)) * 2": [
        *({"op": "logsumexp", "keepdim": False, "dim": 1}, {"op": "tanh"}, {"op": "mul", "constant": 2.0})
    ],
    # A value of each row has one channel, over which there are reductions, too.
    "return y.sum(1, keepdim=True).max(1, keepdim=True).values": [
        *({"op": "sum", "keepdim": True, "dim": 1}, {"op": "max", "keepdim": True, "dim": 1})
    ],
    "return y.sum(-1).unsqueeze(1).logsumexp(-1)": [
        *({"op": "sum", "keepdim": True}, {"op": "logsumexp", "keepdim": False})
    ],
    "return y * y.sum(1, keepdim=True).softmax(1)": [
        *({"op": "sum", "keepdim": True, "dim": 1}, {"op": "softmax", "dim": 1}, {"op": "mul"})
    ],
    # What is put together with the whole row keeps the dimension in the chain.
    "return (y - y.mean(-1).unsqueeze(1)).amax(-1)": [
        *({"op": "mean", "keepdim": True}, {"op": "sub", "swap": True}, {"op": "amax", "keepdim": False})
    ],
}


@pytest.mark.parametrize("body", WRITTEN)
def test_rows(body: str) -> None:
    found = chain(imported(Source("", body)))
    steps = [{key: value for key, value in step.items() if key not in ("save", "value", "name")} for step in found]
    assert [step for step in steps if step["op"] != "linear"] == WRITTEN[body]


class OverChannels(nn.Module):
    def __init__(self, channels: int, features: int, keep: bool) -> None:
        super().__init__()
        self.conv, self.keep = nn.Conv2d(channels, features, 3), keep

    def forward(self, x):
        return torch.tanh(torch.logsumexp(self.conv(x), dim=1, keepdim=self.keep))


@pytest.mark.parametrize("keep", [True, False])
def test_rows_of_positions(keep: bool) -> None:
    found = plan(from_module(OverChannels(3, 8, keep), [torch.randn(2, 3, 6, 5)], arguments=(3, 8, keep))).spec.chain
    assert [step.op for step in found] == ["conv2d", "logsumexp", "tanh"]
    assert (found[1].keepdim, found[1].dim) == (keep, 1)


class OneOfEachImage(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.conv, self.function = nn.Conv2d(3, 5, 3), function

    def forward(self, x):
        return self.function(self.conv(x))


# What follows a reduction whose dimensions stay, until a view drops them at the end.
ONE_OF_EACH_IMAGE = {
    "of all": (lambda y: y.mean((1, 2, 3), keepdim=True).sigmoid().view(-1), ["mean", "sigmoid", "flatten", "mean"]),
    "one after the other": (
        lambda y: (y.sum(1, keepdim=True).tanh().amax((2, 3), keepdim=True) * 2).flatten(),
        ["sum", "tanh", "amax", "mul", "flatten", "mean"],
    ),
    "dropped at once": (lambda y: y.mean((1, 2, 3)).exp(), ["mean", "mean", "exp"]),
}


@pytest.mark.parametrize("function, steps", ONE_OF_EACH_IMAGE.values(), ids=ONE_OF_EACH_IMAGE)
def test_one_value_of_each_image(function, steps) -> None:
    text = from_module(OneOfEachImage(function), [torch.randn(4, 3, 8, 7)])
    found = planned_document(parse_yaml(text, "spec.yaml")).spec.chain
    assert [step.op for step in found[1:]] == steps


class WithFactor(nn.Module):
    def forward(self, x, factor):
        return x.exp().amax(-1, keepdim=True) * factor


def test_a_factor_of_rows() -> None:
    found = plan(from_module(WithFactor(), [torch.randn(5, 8), torch.randn(5, 1)])).spec
    assert [step.op for step in found.chain] == ["exp", "amax", "mul"]
    assert found.inputs["factor"] == (found.inputs["x"][0], 1)


class Head(nn.Module):
    """A loss with what it was made of."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.body, self.fc = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, x, labels):
        logits = self.fc(torch.tanh(self.body(x)))
        return nn.functional.cross_entropy(logits, labels), logits


def test_a_loss_with_its_logits() -> None:
    text = from_module(Head(6, 9), [torch.randn(5, 6), torch.randint(0, 9, (5,))], arguments=(6, 9))
    assert "save: logits}" in text and "outputs: [result, logits]" in text
    assert [step["op"] for step in chain(text)] == ["tanh", "linear", "cross_entropy"]


class Tokens(nn.Module):
    """A loss of [batch, tokens, channels]."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, classes)

    def logits(self, x):
        return self.fc(self.norm(x))


class Flat(Tokens):
    def forward(self, x, labels):
        logits = self.logits(x)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class Viewed(Tokens):
    def forward(self, x, labels):
        logits = self.logits(x)
        return nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=0)


class Apart(Tokens):
    def forward(self, x, labels):
        loss = nn.functional.cross_entropy(self.logits(x).flatten(0, 1), labels.flatten(), reduction="none")
        return loss.view_as(labels)


class Rows(Tokens):
    def forward(self, x, labels):
        return nn.functional.cross_entropy(self.logits(x).flatten(0, 1), labels.flatten(), reduction="none")


class Unlike(Tokens):
    def forward(self, x, labels):
        return nn.functional.cross_entropy(self.logits(x), labels)


def of_tokens(kind: type[Tokens], labels: tuple[int, ...] = (5, 3)) -> str:
    return from_module(kind(6, 9), [torch.randn(5, 3, 6), torch.randint(0, 3, labels)], arguments=(6, 9))


LOSSES = {Flat: {}, Viewed: {"ignore_index": 0}, Apart: {"reduction": "none"}}


@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_of_all_tokens(kind: type[Tokens]) -> None:
    text = of_tokens(kind)
    assert chain(text)[-1] == {"op": "cross_entropy", "target": "labels", **LOSSES[kind]}
    assert "x: [batch, positions, width]" in text and "labels: [batch, positions]" in text


def test_losses_of_tokens_that_are_refused() -> None:
    with pytest.raises(SpecError, match="FG705.*losses of all rows in one dimension"):
        of_tokens(Rows)
    with pytest.raises(SpecError, match="FG707.*flatten both in front of the loss"):
        of_tokens(Unlike, (5, 9))


class Classifier(nn.Module):
    """A loss without logits: of a layer that is not called itself."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, classes, bias=False)

    def forward(self, x, labels):
        return nn.functional.linear_cross_entropy(x, self.head.weight, labels, label_smoothing=0.1)


@pytest.mark.skipif(not hasattr(nn.functional, "linear_cross_entropy"), reason="a newer torch has it")
def test_a_loss_that_asks_for_no_logits() -> None:
    text = from_module(Classifier(6, 9), [torch.randn(5, 6), torch.randint(0, 9, (5,))], arguments=(6, 9))
    assert "{op: linear, name: head, out_features: classes, bias: false}" in text
    (loss,) = chain(text)
    assert loss == {"op": "cross_entropy", "target": "labels", "label_smoothing": 0.1, "chunk": "auto"}


def test_a_value_of_each_row_beside_others() -> None:
    """It is the last value, wherever it is returned."""
    text = imported(Source("", "return y.mean(-1), y.softmax(-1), y.amax(-1, keepdim=True)"))
    found = chain(text)
    assert [step["op"] for step in found] == ["softmax", "amax", "mean"] and found[-1]["keepdim"] is False
    assert text.splitlines()[-1].startswith("outputs: [result, ")


def test_two_values_of_each_row() -> None:
    text = imported(Source("", "return y.mean(-1), y.amax(-1)"))
    assert [(step["op"], step["keepdim"]) for step in chain(text)[-2:]] == [("mean", False), ("amax", False)]
    assert ", result]" in text.splitlines()[-1]


OUTER = {
    "1, m, 1, 1": ("return y.amin(1, keepdim=True) + self.p", (1, "m", 1, 1)),
    "m, 1": ("return (y.sum(1) * self.p).tanh()", ("m", 1)),
    "m": ("return y.sum(1, keepdim=True) - self.p", ("m",)),
}


@pytest.mark.parametrize("shape", OUTER)
def test_an_outer_sum_with_a_parameter(shape: str) -> None:
    body, written = OUTER[shape]
    found = plan(imported(Source(f"self.p = nn.Parameter(torch.randn({shape}))", body))).spec
    assert found.chain[2].shape == written


def test_an_outer_sum_with_a_parameter_of_another_size() -> None:
    source = Source("self.p = nn.Parameter(torch.randn(1, n, 1, 1))", "return y.amin(1, keepdim=True) + self.p")
    with pytest.raises(SpecError, match="does not broadcast"):
        imported(source)


def test_a_layer_of_one_channel_without_its_dimension() -> None:
    made, lines = "self.value = nn.Linear(m, 1)", "return torch.tanh(self.value(torch.relu(y)).squeeze(-1))"
    assert chain(imported(Source(made, lines))) == [
        {"op": "relu"},
        {"op": "linear", "name": "value", "out_features": 1},
        {"op": "tanh"},
        {"op": "mean", "keepdim": False, "dim": 1},
    ]
