"""Modules of chains that nobody committed, as users have them: module, binding and kernels, on the CPU."""

from __future__ import annotations

import copy
import random

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import arguments, size, write  # noqa: E402
from tests.emulate.other_chains import HAND_PICKED  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

# The input twice, a gradient that nobody may want, norms of two kinds, a whole parameter, nothing saved for later.
NAMES = (
    "residual",
    "parameter_only_detached",
    "two_inputs",
    "batch_norms_of_two_kinds",
    "full_parameter",
    "nothing_to_save",
)


@pytest.fixture(scope="module", params=NAMES)
def built(request, tmp_path_factory, emulation_cache):
    root = tmp_path_factory.getbasetemp() / "other_modules"
    root.mkdir(exist_ok=True)
    other = HAND_PICKED[request.param]
    plan = write(f"other_{request.param}", other.spec(f"other_{request.param}"), root)
    package = emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)
    return plan, getattr(package, package.__all__[0])


def prepared(built, seed: int):
    """A module, and inputs of its forward."""
    plan, cls = built
    rows, channels = size(plan.chain.rows, 9), size(plan.chain.channels, 12)
    source = None if plan.chain.contraction is None or "in_features" not in plan.spec.dims else 7
    torch.manual_seed(seed)
    module = cls(*arguments(plan, rows, channels, 3, source))
    inputs = [torch.randn(rows, channels) for _ in plan.chain.inputs]
    inputs[0] = torch.randn(rows, source or channels)
    return module, inputs


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("seed", range(4))
def test_every_gradient_that_is_wanted(built, training: bool, seed: int) -> None:
    module, inputs = prepared(built, seed)
    module.train(training)
    exact = copy.deepcopy(module).double()
    chosen = random.Random(seed)
    for left, right in zip(module.parameters(), exact.parameters(), strict=True):
        want = seed == 0 or chosen.random() < 0.5
        left.requires_grad_(want), right.requires_grad_(want)
    wanted = [seed == 0 or chosen.random() < 0.5 for _ in inputs]
    mine = [value.clone().requires_grad_(want) for value, want in zip(inputs, wanted, strict=True)]
    theirs = [value.double().requires_grad_(want) for value, want in zip(inputs, wanted, strict=True)]
    result, expected = module(*mine), exact.fusegen_reference(*theirs)
    torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-4)
    assert result.requires_grad == expected.requires_grad
    if result.requires_grad:
        grad = torch.randn_like(result)
        result.backward(grad)
        expected.backward(grad.double())
    for left, right in zip([*module.parameters(), *mine], [*exact.parameters(), *theirs], strict=True):
        assert (left.grad is None) == (right.grad is None)
        if left.grad is not None:
            torch.testing.assert_close(left.grad.double(), right.grad, rtol=1e-4, atol=1e-4)
    for left, right in zip(module.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(left.double(), right.double(), rtol=1e-5, atol=1e-5)


def test_torch_compile_without_graph_break(built) -> None:
    module, inputs = prepared(built, 0)
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager")
    gradients = []
    for call in (module, compiled):
        leaves = [value.clone().requires_grad_() for value in inputs]
        result = call(*leaves)
        result.backward(torch.ones_like(result))
        gradients.append([leaf.grad for leaf in (*call.parameters(), *leaves)])
    for left, right in zip(*gradients, strict=True):
        assert (left is None) == (right is None)
        assert left is None or torch.equal(left, right)
