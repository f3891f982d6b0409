"""Dropout under torch.compile, whose backward pass may compute anything again but the seed."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils import checkpoint as checkpoints  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

P, WIDTH = 0.5, 12
SPEC = f"""\
fusegen: 1
name: compiled_drops
dims: {{batch: 64, width: 64}}
inputs: {{x: [batch, width]}}
dtypes: [float32]
chain:
  - {{op: dropout, name: drop, p: {P}}}
"""


class Surrounded(nn.Module):
    """The dropout with values before and behind that a backward pass may compute again."""

    def __init__(self, fused: nn.Module) -> None:
        super().__init__()
        self.before, self.behind = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fused = fused
        fused.fusegen_strict = True

    def forward(self, x):
        dropped = self.fused(torch.tanh(self.before(x)))
        return self.behind(torch.tanh(dropped)).sin(), dropped.detach()

    def expected(self, x, factors):
        return self.behind(torch.tanh(torch.tanh(self.before(x)) * factors)).sin()


@pytest.fixture(scope="module")
def dropout(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("compiled_drops")
    plan = write("compiled_drops", SPEC, root)
    return getattr(emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False), plan.spec.class_name)


@pytest.fixture
def module(dropout):
    torch._dynamo.reset()
    torch.manual_seed(2)
    return Surrounded(dropout())


def selective(policy):
    return functools.partial(checkpoints.create_selective_checkpoint_contexts, lambda *_, **__: policy)


POLICY = checkpoints.CheckpointPolicy
AROUND = {
    "nothing": lambda call: call,
    "a checkpoint": lambda call: functools.partial(checkpoints.checkpoint, call, use_reentrant=False),
    "a selective one that would save": lambda call: functools.partial(
        checkpoints.checkpoint, call, use_reentrant=False, context_fn=selective(POLICY.PREFER_SAVE)
    ),
    "a selective one that recomputes": lambda call: functools.partial(
        checkpoints.checkpoint, call, use_reentrant=False, context_fn=selective(POLICY.MUST_RECOMPUTE)
    ),
}


def check(module, call) -> None:
    """The gradients are those of the elements that the forward pass has dropped."""
    x = torch.randn(40, WIDTH, requires_grad=True)
    result, dropped = call(x)
    factors = (dropped != 0) / (1 - P)
    assert 0.3 < (factors == 0).double().mean() < 0.7
    torch.manual_seed(99)  # so that a seed drawn again is another one
    found = torch.autograd.grad(result.sum(), [x, *module.parameters()])
    expected = module.expected(x, factors)
    torch.testing.assert_close(result, expected)
    for mine, right in zip(found, torch.autograd.grad(expected.sum(), [x, *module.parameters()]), strict=True):
        torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("budget", [1.0, 0.5, 1e-3, 0.0])
@pytest.mark.parametrize("around", AROUND)
def test_the_seed_is_not_drawn_again(around, budget, module) -> None:
    with torch._functorch.config.patch(activation_memory_budget=budget):
        check(module, torch.compile(AROUND[around](module), backend="aot_eager", fullgraph=True))


@pytest.mark.parametrize("around", AROUND)
def test_checkpoints_without_a_compiler(around, module) -> None:
    check(module, AROUND[around](module))


def test_a_checkpoint_around_what_is_compiled(module) -> None:
    with torch._functorch.config.patch(activation_memory_budget=0.5):
        compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
        check(module, functools.partial(checkpoints.checkpoint, compiled, use_reentrant=False))


def test_inductors_random_numbers(module) -> None:
    """Inductor has ops of its own in the place of torch's before the graph is divided."""
    budget = torch._functorch.config.patch(activation_memory_budget=0.5)
    with budget, torch._inductor.config.patch(force_disable_caches=True):
        check(module, torch.compile(AROUND["a checkpoint"](module), fullgraph=True))


@pytest.mark.skipif(not hasattr(torch.autograd.graph, "region_activation_memory_budget"), reason="from torch 2.13 on")
def test_a_region_whose_budget_is_zero_is_refused(module) -> None:
    """There the partitioner saves nothing, whatever a node says."""

    def compiled(budget: float):
        def call(x):
            with torch.autograd.graph.region_activation_memory_budget(budget):
                return module(x)

        torch._dynamo.reset()
        return torch.compile(call, backend="aot_eager", fullgraph=True)

    check(module, compiled(0.25))
    with pytest.raises(Exception, match="dropout's seed must be saved"):
        check(module, compiled(0.0))


def test_an_exported_program_draws(module) -> None:
    x = torch.ones(40, WIDTH)
    program = torch.export.export(module.fused.train(), (x,), strict=True).module()
    first, second = program(x), program(x)
    assert set(first.unique().tolist()) == {0.0, 2.0} and not torch.equal(first, second)
