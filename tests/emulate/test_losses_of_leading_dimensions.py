"""Cross entropy of values [batch, tokens, channels]: the loss of all rows, beside F.cross_entropy in float64."""

from __future__ import annotations

from pathlib import Path

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
chain:
  - {{op: linear, name: head, out_features: classes, bias: false}}
  - {{op: cross_entropy, target: labels{}}}
"""
# Without a layer the target tells these values from images [batch, channels, positions].
ALONE = """dims: {batch: 4, tokens: 8, classes: 32}
inputs: {x: [batch, tokens, classes], labels: [batch, tokens]}
chain:
  - {op: div, constant: 2.0}
  - {op: cross_entropy, target: labels, reduction: none, ignore_index: 3}
"""
CHAINS = {
    "mean_in_chunks": LAYER.format(", chunk: 5, label_smoothing: 0.1"),
    "apart_in_chunks": LAYER.format(", chunk: 5, reduction: none"),
    "alone": ALONE,
}
OPTIONS = {
    "mean_in_chunks": {"label_smoothing": 0.1},
    "apart_in_chunks": {"reduction": "none"},
    "alone": {"reduction": "none", "ignore_index": 3},
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory, emulation_cache):
    return suites_of(CHAINS, tmp_path_factory.mktemp("leading_losses"), emulation_cache)


def called(suite, name: str):
    module_class = getattr(suite(name).subject.package, suite(name).subject.plan.spec.class_name)
    torch.manual_seed(0)
    module = module_class(width=6, classes=9) if "chunks" in name else module_class()
    module.fusegen_strict = True
    x = torch.randn(3, 4, 6 if "chunks" in name else 9, requires_grad=True)
    labels = torch.randint(0, 9, (4, 3)).T  # which is no view of rows
    labels[1, 2] = OPTIONS[name].get("ignore_index", -100)
    return module, x, labels


@pytest.mark.parametrize("name", CHAINS)
def test_all_rows_have_a_loss(suite, name: str) -> None:
    module, x, labels = called(suite, name)
    loss = module(x, labels)
    wide = x.detach().double().requires_grad_()
    weights = [each.detach().double().requires_grad_() for each in module.parameters()]
    logits = F.linear(wide, *weights) if weights else wide / 2
    expected = F.cross_entropy(logits.movedim(-1, 1), labels, **OPTIONS[name])
    assert loss.shape == expected.shape == (labels.shape if OPTIONS[name].get("reduction") else ())
    by = torch.randn_like(loss)
    found = torch.autograd.grad(loss, [x, *module.parameters()], by)
    exact = torch.autograd.grad(expected, [wide, *weights], by.double())
    for mine, other in zip((loss.detach(), *found), (expected.detach(), *exact), strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=1e-6)
    assert not found[0][1, 2].any()


@pytest.mark.parametrize("name", CHAINS)
def test_the_module_is_verified(suite, name: str) -> None:
    found, wrong = compared(suite(name), [(10, 6, 7, 1)])
    assert found and not wrong


def test_other_dimensions_are_refused(suite) -> None:
    module, x, labels = called(suite, "mean_in_chunks")
    with pytest.raises(ValueError, match="the spec gives its inputs so many"):
        module(x.flatten(0, 1), labels.flatten())


def planned(text: str):
    return planned_document(parse_yaml(f"fusegen: 1\nname: planned\n{text}", "planned.yaml"))


def test_images_and_regions() -> None:
    """A target of positions says that x has images; a norm in front of the layer is a region of its own."""
    images = ALONE.replace("labels: [batch, tokens]", "labels: [batch, classes]")
    assert planned(images).spatial == 1 and planned(ALONE).spatial == 0
    regions = planned(LAYER.format("").replace("chain:\n", "chain:\n  - {op: layer_norm, name: norm}\n"))
    assert len(regions.regions) == 2 and regions.dimensions.most == 3


REFUSED = {
    "a target of samples": (LAYER.format("").replace("labels: [batch, tokens]", "labels: [batch]"), "FG303.*target"),
    "with another mistake": (LAYER.format(", label_smoothing: 2"), "label_smoothing.*must be"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, tmp_path: Path) -> None:
    text, message = REFUSED[case]
    with pytest.raises(SpecError, match=message) as raised:
        planned(text)
    assert len(raised.value.diagnostics) == 1
