"""Losses of a linear layer some rows at a time: which are taken, and what the model then computes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.aten.nodes import shape_of  # noqa: E402
from fusegen.backend import Backend  # noqa: E402
from fusegen.capture.linear_losses import linear_loss_chain, linear_losses, write_linear_losses  # noqa: E402
from tests.capture.graphs import lowered  # noqa: E402
from tests.capture.test_backend import Make  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

H, W, LABELS = torch.randn(2, 7, 6, requires_grad=True), torch.randn(9, 6, requires_grad=True), torch.zeros(2, 7).long()


def found(call: Callable[..., Any], *inputs: Tensor) -> list[dict[str, Any]]:
    """The steps of each region, with the sizes of the layer's input."""
    graph = lowered(call, *inputs).graph
    write_linear_losses(graph)
    graph.lint()
    chains = [(region, linear_loss_chain(region, "auto").data["chain"]) for region in linear_losses(graph)]
    return [{"rows": shape_of(region.nodes[0].args[0]), **chain[1]} for region, chain in chains]


def shifted(h: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    """As language models have written it: the logits without the last, of the next tokens."""
    logits = F.linear(h, w)[..., :-1, :].contiguous()
    return F.cross_entropy(logits.view(-1, 9), labels[..., 1:].contiguous().view(-1))


def padded(h: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    """As they write it now: the labels are moved, and the sum is divided by a number of the caller's."""
    labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    logits = F.linear(h, w).float().view(-1, 9)
    return F.cross_entropy(logits, labels.view(-1), ignore_index=-100, reduction="sum") / 11


STEP = {"op": "cross_entropy", "target": "target", "chunk": "auto"}
TAKEN: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "flat": (
        lambda h, w, t: F.cross_entropy(F.linear(h, w).flatten(0, 1), t.flatten(), label_smoothing=0.1),
        {"rows": (14, 6), **STEP, "reduction": "mean", "label_smoothing": 0.1},
    ),
    "shifted": (shifted, {"rows": (12, 6), **STEP, "reduction": "mean"}),
    "padded": (padded, {"rows": (14, 6), **STEP, "reduction": "sum"}),
    "rows": (
        lambda h, w, t: F.cross_entropy(F.linear(h[0], w), t[0], ignore_index=3),
        {"rows": (7, 6), **STEP, "reduction": "mean", "ignore_index": 3},
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(name: str) -> None:
    call, wanted = TAKEN[name]
    assert found(call, H, W, LABELS) == [wanted]


def logits_too(h: Tensor, w: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    logits = F.linear(h[0], w)
    return F.cross_entropy(logits, labels[0]), logits


def without_gradient(h: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    with torch.no_grad():
        logits = F.linear(h[0], w)
    return F.cross_entropy(logits, labels[0])


STAY: dict[str, Callable[..., Any]] = {
    "logits are returned": logits_too,
    "another mode": without_gradient,
    "losses of rows": lambda h, w, t: F.cross_entropy(F.linear(h[0], w), t[0], reduction="none") * 2,
    "something between": lambda h, w, t: F.cross_entropy(F.linear(h[0], w).tanh(), t[0]),
    "some classes": lambda h, w, t: F.cross_entropy(F.linear(h[0], w)[:, :5], t[0]),
    "no layer": lambda h, w, t: F.cross_entropy(h[0] * 2, t[0]),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name: str) -> None:
    assert not found(STAY[name], H, W, LABELS)


def weighted(h: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    weights = (w.detach()[:, 0].sigmoid() + 0.5).float()
    with torch.autocast("cpu", enabled=False):
        return F.cross_entropy(F.linear(h, w).flatten(0, 1), labels.flatten(), weights.to(h.dtype))


class Language(nn.Module):
    """The end of a language model, with the weight of the embedding as the layer's."""

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.embed, self.norm, self.loss = nn.Embedding(9, 6), nn.LayerNorm(6), loss

    def forward(self, tokens: Tensor) -> Tensor:
        return self.loss(self.norm(self.embed(tokens)), self.embed.weight, tokens)


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("loss", [shifted, padded, weighted], ids=["shifted", "padded", "weights"])
def test_values_and_gradients(backend: Make, loss: Callable[..., Tensor], autocast: bool) -> None:
    torch.manual_seed(0)
    eager = Language(loss)
    fused, exact = copy.deepcopy(eager), copy.deepcopy(eager).double()
    own = backend(loss_chunk=5)
    tokens = torch.randint(9, (2, 7))
    exact(tokens).backward()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        mine, theirs = torch.compile(fused, backend=own)(tokens), eager(tokens)
    for each in (mine, theirs):
        (3 * each).backward()
    taken = [each.ops for each in own.report.taken if "cross_entropy_loss" in each.ops]
    assert len(taken) == 1 and taken[0][0] == "linear", str(own.report)
    eps = torch.finfo(torch.bfloat16 if autocast else torch.float32).eps
    for a, b, c in zip(*(module.parameters() for module in (fused, eager, exact)), strict=True):
        right = 3 * c.grad
        assert a.grad.dtype == b.grad.dtype
        assert (a.grad.double() - right).norm() <= 2 * (b.grad.double() - right).norm() + 2 * eps * right.norm()


def test_what_saves_memory_is_not_measured(backend: Make) -> None:
    own = backend(choose="measure", loss_chunk=5)
    torch.compile(Language(padded), backend=own)(torch.randint(9, (2, 7))).backward()
    assert [each for each in own.report.taken if each.ops[0] == "linear"], str(own.report)


def test_without_the_option_nothing_is_divided(backend: Make) -> None:
    own = backend(choose="all")
    torch.compile(Language(padded), backend=own)(torch.randint(9, (2, 7))).backward()
    assert not [each for each in own.report.taken if "linear" in each.ops]


@pytest.mark.parametrize("wrong", [0, -1, "all", 2.5, True])
def test_other_numbers_of_rows_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="loss_chunk must be"):
        Backend(loss_chunk=wrong)
