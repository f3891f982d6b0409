"""Cross entropy with a share of the squared logsumexp, and with the logsumexp as a further result."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from fusegen.errors import SpecError  # noqa: E402
from fusegen.plan.load import planned_document  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402
from tests.emulate.suites import compared, suites_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

LAYER = """dims: {{batch: 4, tokens: 8, width: 16, classes: 32}}
arguments: {{width: {{type: dim}}, classes: {{type: dim}}}}
inputs: {{x: [batch, tokens, width], labels: [batch, tokens]}}
{}chain:
  - {{op: linear, name: head, out_features: classes, bias: false, save: logits}}
{}"""
LOSS = "  - {{op: cross_entropy, target: labels{}}}\n"
RESULTS = "  - {op: logsumexp, keepdim: true, save: lse}\n  - {op: cross_entropy, from: logits, target: labels}\n"


def with_loss(options: str) -> str:
    return LAYER.format("", LOSS.format(options)).replace(", save: logits", "")


CHAINS = {
    "mean": with_loss(", z_loss: 0.25, label_smoothing: 0.1"),
    "apart": with_loss(", z_loss: 0.25, ignore_index: 1, reduction: none"),
    "sum_in_chunks": with_loss(", z_loss: 0.25, reduction: sum, chunk: 5"),
    "mean_in_chunks": with_loss(", z_loss: 0.25, chunk: 5"),
    "results": LAYER.format("outputs: [result, lse]\n", RESULTS),
}
OPTIONS = {
    "mean": {"label_smoothing": 0.1},
    "apart": {"ignore_index": 1, "reduction": "none"},
    "sum_in_chunks": {"reduction": "sum"},
    "mean_in_chunks": {},
    "results": {},
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory, emulation_cache):
    return suites_of(CHAINS, tmp_path_factory.mktemp("z_losses"), emulation_cache)


def called(suite, name: str):
    subject = suite(name).subject
    torch.manual_seed(0)
    module = getattr(subject.package, subject.plan.spec.class_name)(width=6, classes=9)
    module.fusegen_strict = True
    labels = torch.randint(0, 9, (3, 4))
    labels[1, 2] = OPTIONS[name].get("ignore_index", -100)
    x = torch.randn(3, 4, 6, requires_grad=True)
    return module, x, labels, x.detach().double().requires_grad_(), module.head.weight.detach().double()


def assert_near(found, expected) -> None:
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in CHAINS if name != "results"])
def test_losses_and_gradients(suite, name: str) -> None:
    module, x, labels, wide, weight = called(suite, name)
    options = {"reduction": "mean", **OPTIONS[name]}
    logits, target = F.linear(wide, weight.requires_grad_()).flatten(0, 1), labels.flatten()
    counts = target != options.get("ignore_index", -100)
    squares = torch.logsumexp(logits, 1).square() * counts
    over = {"none": squares.view_as(labels), "sum": squares.sum(), "mean": squares.sum() / counts.sum()}
    plain = F.cross_entropy(logits, target, **options)
    loss, expected = module(x, labels), plain.view_as(over[options["reduction"]]) + 0.25 * over[options["reduction"]]
    by = torch.randn(expected.shape, dtype=torch.float64)
    found = torch.autograd.grad(loss, [x, module.head.weight], by.float())
    assert_near([loss.detach(), *found], [expected.detach(), *torch.autograd.grad(expected, [wide, weight], by)])
    assert not found[0][1, 2].any()


def test_a_loss_with_its_logsumexp(suite) -> None:
    """Both from one look at the logits, each with a gradient."""
    module, x, labels, wide, weight = called(suite, "results")
    loss, lse = module(x, labels)
    logits = F.linear(wide, weight)
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten()), torch.logsumexp(logits, -1, keepdim=True)
    assert_near([loss, lse], expected)
    (found,) = torch.autograd.grad(loss + 0.1 * lse.square().sum(), x)
    (exact,) = torch.autograd.grad(expected[0] + 0.1 * expected[1].square().sum(), wide)
    assert_near([found], [exact])
    assert len(suite("results").subject.plan.plans) == 1


@pytest.mark.parametrize("name", ["mean", "apart"])
def test_the_module_is_verified(suite, name: str) -> None:
    found, wrong = compared(suite(name), [(10, 6, 7, 1)])
    assert found and not wrong


def test_weights_of_classes_are_refused() -> None:
    text = with_loss(", z_loss: 0.1, weight: weights").replace(
        "labels: [batch, tokens]", "labels: [batch, tokens], weights: [classes]"
    )
    with pytest.raises(SpecError, match="FG205.*z_loss has no weights of classes"):
        planned_document(parse_yaml(f"fusegen: 1\nname: refused\n{text}", "refused.yaml"))
