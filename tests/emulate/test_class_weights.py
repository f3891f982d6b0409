"""Cross entropy with weights of classes, beside F.cross_entropy in float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from fusegen.errors import SpecError  # noqa: E402
from fusegen.plan.load import planned_document  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402
from tests.emulate.convolutions import part_of_support  # noqa: E402
from tests.emulate.suites import compared, suites_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

LAYER = """dims: {{batch: 64, width: 16, classes: 32}}
arguments: {{width: {{type: dim}}, classes: {{type: dim}}}}
inputs: {{x: [batch, width], target: [batch], weights: [classes]}}
chain:
  - {{op: linear, name: head, out_features: classes}}
  - {{op: cross_entropy, target: target, weight: weights{}}}
"""
IMAGES = """dims: {batch: 4, classes: 32, height: 4, width: 5}
inputs: {x: [batch, classes, height, width], weights: [classes], target: [batch, height, width]}
chain:
  - {op: tanh}
  - {op: cross_entropy, target: target, weight: weights, label_smoothing: 0.25}
"""
OPTIONS = {
    "mean": {"ignore_index": 2},
    "smooth": {"label_smoothing": 0.25, "reduction": "none"},
    "mean_in_chunks": {"label_smoothing": 0.25},
    "apart_in_chunks": {"reduction": "none"},
}
CHAINS = {
    "mean": LAYER.format(", ignore_index: 2"),
    "smooth": LAYER.format(", label_smoothing: 0.25, reduction: none"),
    "mean_in_chunks": LAYER.format(", label_smoothing: 0.25, chunk: 3"),
    "apart_in_chunks": LAYER.format(", reduction: none, chunk: 3"),
    "images": IMAGES,
    "regions": LAYER.format("").replace("chain:\n", "chain:\n  - {op: rms_norm, name: norm}\n"),
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory, emulation_cache):
    return suites_of(CHAINS, tmp_path_factory.mktemp("class_weights"), emulation_cache)


def called(suite, name: str, rows: int = 11):
    subject = suite(name).subject
    torch.manual_seed(0)
    module = getattr(subject.package, subject.plan.spec.class_name)(width=6, classes=9)
    module.fusegen_strict = True
    target = torch.randint(0, 9, (rows,))
    target[4] = OPTIONS[name].get("ignore_index", -100)
    return module, torch.randn(rows, 6, requires_grad=True), target, torch.rand(9) + 0.1


def losses_and_gradients(loss, x, parameters, seed: int = 5):
    torch.manual_seed(seed)
    by = torch.randn(loss.shape).to(loss)
    return [loss.detach(), *torch.autograd.grad(loss, [x, *parameters], by)]


def exact(name: str, module, x, target, weights):
    wide = x.detach().double().requires_grad_()
    parameters = [each.detach().double().requires_grad_() for each in module.parameters()]
    loss = F.cross_entropy(F.linear(wide, *parameters), target, weights.double(), **OPTIONS[name])
    return losses_and_gradients(loss, wide, parameters)


def assert_near(found, expected) -> None:
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPTIONS)
def test_losses_and_gradients(suite, name: str) -> None:
    module, *given = called(suite, name)
    found = losses_and_gradients(module(*given), given[0], module.parameters())
    assert_near(found, exact(name, module, *given))
    assert not found[1][4].any()


@pytest.mark.parametrize("name", ["mean", "mean_in_chunks"])
def test_compiled_and_without_gradients(suite, name: str) -> None:
    module, *given = called(suite, name)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    expected = exact(name, module, *given)
    assert_near(losses_and_gradients(compiled(*given), given[0], module.parameters()), expected)
    with torch.no_grad():
        assert_near([module(*given)], expected[:1])


def test_the_mean_of_many_rows(suite, monkeypatch) -> None:
    """By PyTorch's operators: also where a target is no channel."""
    module, *given = called(suite, "mean")
    monkeypatch.setattr(part_of_support(type(module), "losses"), "_MOST_ROWS", 10)
    assert_near(losses_and_gradients(module(*given), given[0], module.parameters()), exact("mean", module, *given))
    given[1][7] = 9
    assert module(*given).isnan()


def test_a_class_of_no_weight(suite) -> None:
    """Its rows have neither a loss nor a gradient; of such rows alone there is no mean."""
    module, x, target, weights = called(suite, "mean")
    weights[int(target[0])] = 0
    found = losses_and_gradients(module(x, target, weights), x, module.parameters())
    assert_near(found, exact("mean", module, x, target, weights))
    assert not found[1][0].any() and module(x, target, torch.zeros(9)).isnan()


def test_weights_have_no_gradient(suite) -> None:
    """As in PyTorch, which refuses to be asked for one."""
    module, x, target, weights = called(suite, "mean")
    with pytest.raises(RuntimeError, match="not differentiable with respect to argument 'weight'"):
        module(x, target, weights.requires_grad_())
    with torch.no_grad():
        assert module.fusegen_kernels(x, target, weights)


@pytest.mark.parametrize("name", ["mean_in_chunks", "images", "regions"])
def test_the_module_is_verified(suite, name: str) -> None:
    found, wrong = compared(suite(name), [(10, 6, 7, 1)])
    assert found and not wrong


REFUSED = {
    "another shape": (("weights: [classes]", "weights: [batch]"), "FG303.*'weights' have the shape"),
    "no input": (("weight: weights", "weight: weight"), "FG301.*no input named 'weight'"),
    "the first input": (("weight: weights", "weight: x"), "FG303.*has no weights of channels"),
    "a target": (("weight: weights", "weight: target"), "FG303.*target"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    replaced, message = REFUSED[case]
    text = LAYER.format("").replace(*replaced)
    with pytest.raises(SpecError, match=message):
        planned_document(parse_yaml(f"fusegen: 1\nname: refused\n{text}", "refused.yaml"))
