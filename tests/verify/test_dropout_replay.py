"""Dropouts of modules that are compared have the factors of one seed; other factors are found."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.training import compare_steps  # noqa: E402
from fusegen.verify.runs.dropout_replay import drawn_seed, own_draws, replay, replays, samples_of, seeded  # noqa: E402
from tests.plan.planning import planned  # noqa: E402

pytestmark = pytest.mark.torch

STEPS = (
    "op: mul, parameter: scale, shape: [width], init: randn",
    "op: dropout, name: drop, p: 0.25",
    "op: drop_path, name: path",
)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    root = tmp_path_factory.mktemp("drawn")
    plan = planned(root, *STEPS)
    write_files(render_all([module_of(plan)]), root)
    return plan, fusegen.load("demo", root)


def pair(loaded, seed: int):
    """The chain in PyTorch's operators, twice: with the factors of another seed, and with those of the fixed one."""
    plan, cls = loaded
    eager = type("Eager", (cls,), {"forward": cls.fusegen_reference})
    torch.manual_seed(3)
    right = eager(32)
    wrong = copy.deepcopy(right)
    replay(right, plan.chain, cls, drawn_seed(cls, "cpu"))
    replay(wrong, plan.chain, cls, drawn_seed(cls, "cpu") + seed)
    return wrong, right


def test_the_same_factors_pass_and_others_do_not(loaded) -> None:
    x = torch.randn(24, 32, requires_grad=True)
    for seed, same in ((0, True), (1, False)):
        found = compare_module(*pair(loaded, seed), [x])
        assert all(each.ok for each in found) == same
        assert all(each.ok for each in compare_module(*pair(loaded, seed), [x], train=False))
        found = compare_steps(*pair(loaded, seed), [[torch.randn(24, 32)] for _ in range(2)])
        assert all(each.ok for each in found) == same


def test_a_call_draws_the_fixed_seed_and_leaves_the_generator(loaded) -> None:
    _, cls = loaded
    module, x = cls(32), torch.randn(4, 32)
    state = torch.get_rng_state()
    with seeded(module, x):
        drawn = module.fusegen_seed("cpu")
    assert torch.equal(drawn, drawn_seed(cls, "cpu")) and torch.equal(torch.get_rng_state(), state)


def test_rows_of_a_sample_have_one_factor(loaded) -> None:
    _, module = pair(loaded, 0)
    x, rows = torch.ones(6, 5, 32), torch.ones(30, 32)
    module.drop.eval()
    expected = module(x)
    with samples_of(module, 5):
        assert torch.equal(module(rows).view(x.shape), expected)
    assert not torch.equal(module(rows).view(x.shape), expected)


def test_a_dropout_can_draw_for_itself(loaded) -> None:
    _, module = pair(loaded, 0)
    x = torch.ones(40, 32)
    assert replays(module) and torch.equal(module(x), module(x))
    with own_draws(module):
        assert not torch.equal(module(x), module(x))
    assert torch.equal(module.eval()(x), x * module.scale)


def test_compiled_peers(loaded) -> None:
    """A peer of a benchmark is checked with the factors of the seed, and timed with its own."""
    _, module = pair(loaded, 0)
    compiled, x = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager"), torch.randn(40, 32)
    torch.testing.assert_close(compiled(x), module(x))
    with own_draws(module, compiled):
        first, second = compiled(x), compiled(x)
    assert not torch.equal(first, second)
    torch.testing.assert_close(compiled(x), module(x))
