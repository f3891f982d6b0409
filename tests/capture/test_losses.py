"""Cross entropies: which are taken, and what the model then computes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.aten.nodes import operator_of, value_of  # noqa: E402
from fusegen.capture.losses import TOO_SMALL, loss_chain, losses  # noqa: E402
from tests.capture.graphs import lowered, of_lowered  # noqa: E402
from tests.capture.test_backend import Make  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]
X, TARGET = torch.randn(6, 9, requires_grad=True), torch.tensor([3, 8, -100, 0, 2, 5])


def chains(call: Callable[..., Any], *inputs: Tensor) -> list[dict[str, Any]]:
    graph = lowered(call, *inputs).graph
    return [loss_chain(region).data["chain"][0] for region in losses(graph)]


STEP = {"op": "cross_entropy", "target": "target", "reduction": "none"}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("options", "keys"),
    [({}, {}), ({"ignore_index": 3}, {"ignore_index": 3}), ({"label_smoothing": 0.25}, {"label_smoothing": 0.25})],
    ids=["plain", "ignored", "smoothed"],
)
def test_what_is_taken(reduction: str, options: dict[str, Any], keys: dict[str, Any]) -> None:
    assert chains(lambda x, t: F.cross_entropy(x, t, reduction=reduction, **options), X, TARGET.clamp(min=0)) == [
        STEP | keys
    ]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, t: F.cross_entropy(x, torch.softmax(x, -1)),
        lambda x, t: F.cross_entropy(x.view(2, 9, 3), t.view(2, 3).clamp(min=0)),
        lambda x, t: F.cross_entropy(x[0], t[0]),
        lambda x, t: F.cross_entropy(x.double(), t),
        lambda x, t: F.nll_loss(x, t.clamp(min=0)),
        lambda x, t: F.nll_loss(F.log_softmax(x, 0), t.clamp(min=0)),
        lambda x, t: F.nll_loss(y := F.log_softmax(x, -1), t.clamp(min=0)) + y.mean(),
    ],
    ids=["probabilities", "images", "one row", "float64", "nll_loss", "over rows", "two losses"],
)
def test_what_stays(call: Callable[..., Any]) -> None:
    assert not chains(call, X, TARGET)


WEIGHTS = torch.arange(1.0, 10.0)
FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "nll": lambda x, t: F.nll_loss(F.log_softmax(x.flatten(0, -2), -1), t.flatten()),
    "nll in float32": lambda x, t: F.nll_loss(
        F.log_softmax(x.flatten(0, -2), dim=1, dtype=torch.float32), t.flatten(), reduction="sum"
    ),
    "transposed": lambda x, t: F.cross_entropy(x.transpose(1, 2), t, label_smoothing=0.25),
    "moved": lambda x, t: F.cross_entropy(x.movedim(-1, 1) * 1, t, reduction="none"),
    "nll transposed": lambda x, t: F.nll_loss(torch.log_softmax(x, 2).transpose(1, 2) * 1, t),
    "nll of transposed": lambda x, t: F.nll_loss(F.log_softmax(x.transpose(1, 2), 1), t, WEIGHTS),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("form", FORMS)
def test_other_forms(form: str, dynamic: bool) -> None:
    x, target = torch.randn(2, 3, 9).requires_grad_(), torch.tensor([[3, 8, -100], [0, 2, 5]])
    for each in (x, target) if dynamic else ():
        torch._dynamo.mark_dynamic(each, (0, 1))
    graph = lowered(FORMS[form], x, target).graph
    assert len(list(losses(graph))) == (form != "nll transposed")


@pytest.mark.parametrize("form", FORMS)
def test_other_forms_are_the_same_losses(form: str) -> None:
    x, target = torch.randn(2, 3, 9).requires_grad_(), torch.tensor([[3, 8, -100], [0, 2, 5]])
    found = []
    for call in (FORMS[form], lambda *given: of_lowered(FORMS[form], *given)):
        loss = call(x, target)
        (grad,) = torch.autograd.grad(loss.sum(), x)
        found.append((loss.detach(), grad))
    for wanted, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, wanted)


def test_a_log_softmax_without_gradients_stays() -> None:
    """Its gradient would flow."""

    def call(x: Tensor, t: Tensor) -> Tensor:
        with torch.no_grad():
            y = F.log_softmax(x, -1)
        return F.nll_loss(y, t) + x.sum()

    assert not chains(call, X, TARGET.clamp(min=0))


def test_a_cast_moves_behind_layouts() -> None:
    """As language models write it: the logits are read in 16 bits."""
    x = torch.randn(2, 3, 9).bfloat16().requires_grad_()
    graph = lowered(lambda x, t: F.cross_entropy((x * 2).float().view(-1, 9), t), x, TARGET).graph
    (region,) = losses(graph)
    cast, _ = region.nodes
    (view,) = (node for node in graph.nodes if operator_of(node)[1] == "view")
    assert cast.args[0] is view and value_of(view).dtype == torch.bfloat16 and value_of(view).shape == (6, 9)


def test_a_cast_that_others_take_stays() -> None:
    x = torch.randn(6, 9).bfloat16().requires_grad_()

    def call(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        wide = x.float()
        return F.cross_entropy(wide, t), wide

    (region,) = losses(lowered(call, x, TARGET).graph)
    assert [operator_of(node)[1] for node in region.nodes] == ["cross_entropy_loss"]


def test_a_cast_stays_in_front_of_a_change_in_place() -> None:
    def call(x: Tensor, t: Tensor) -> Tensor:
        y = x * 2
        wide = y.float().view(-1, 9)
        y.view(-1).add_(torch.arange(54))
        return F.cross_entropy(wide, t) + y.float().sum()

    x, target = torch.randn(2, 3, 9).bfloat16(), TARGET.clamp(min=0)
    torch.testing.assert_close(of_lowered(call, x, target), call(x, target))


def test_a_cast_in_front_of_a_change_in_place_is_not_in_the_region(backend: Make) -> None:
    def call(x: Tensor, t: Tensor) -> Tensor:
        y = x * 2
        wide = y.float()
        y.view(-1).add_(torch.arange(54))
        return F.cross_entropy(wide, t) + y.float().sum()

    x, target, own = torch.randn(6, 9).bfloat16(), TARGET.clamp(min=0), backend(choose="all")
    torch.testing.assert_close(torch.compile(call, backend=own)(x, target), call(x, target))
    assert own.report.taken, str(own.report)


class Language(nn.Module):
    """A head over a vocabulary, and its loss."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.head, self.options = nn.Linear(12, 37), options

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.head(x).float().flatten(0, -2), target.flatten(), **self.options)


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize(
    "options",
    [{}, {"reduction": "sum", "label_smoothing": 0.1, "ignore_index": 5}, {"weight": torch.rand(37) + 0.1}],
    ids=["mean", "sum", "weights"],
)
def test_values_and_gradients(backend: Make, options: dict[str, Any], autocast: bool) -> None:
    torch.manual_seed(0)
    eager = Language(options)
    fused, exact = copy.deepcopy(eager), copy.deepcopy(eager).double()
    own = backend(choose="all")
    compiled = torch.compile(fused, backend=own)
    target = torch.randint(37, (4, 5))
    target[0, :2] = options.get("ignore_index", -100)
    x = torch.randn(4, 5, 12)
    wanted = exact(x.double(), target)
    wanted.backward()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        mine, theirs = compiled(x, target), eager(x, target)
    for loss in (mine, theirs):
        loss.backward()
    assert mine.dtype == theirs.dtype == torch.float32 and mine.shape == ()
    assert [each.ops[-1] for each in own.report.taken] == ["cross_entropy_loss"], str(own.report)
    own_errors = [(mine, theirs, wanted)]
    own_errors += [
        (a.grad, b.grad, c.grad) for a, b, c in zip(*(m.parameters() for m in (fused, eager, exact)), strict=True)
    ]
    for found, other, right in own_errors:
        allowed = 2 * (other.double() - right).norm() + 8 * torch.finfo(torch.float32).eps * right.norm()
        assert (found.double() - right).norm() <= allowed


def test_without_any_row_that_counts(backend: Make) -> None:
    own = backend(choose="all")
    x = torch.randn(6, 9, requires_grad=True)
    loss = torch.compile(F.cross_entropy, backend=own)(x, torch.full((6,), -100))
    loss.backward()
    assert loss.isnan() and own.report.taken


def test_the_report_says_what_is_too_small(backend: Make) -> None:
    own = backend()
    torch.compile(F.cross_entropy, backend=own)(X, TARGET).backward()
    assert [each.reason for each in own.report.left] == [TOO_SMALL]
