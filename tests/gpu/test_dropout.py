"""Dropout on a GPU: a call's seed comes from torch's generator, with which nn.Dropout draws."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

import fusegen  # noqa: E402
from fusegen.build import Request, build_extensions  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.tune.device import current_target  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]

SPEC = """\
fusegen: 1
name: gpu_drops
dims: {{batch: 512, width: 1024}}
inputs: {{x: [batch, width]}}
dtypes: [float32]
targets: [{target}]
chain:
  - {{op: add, constant: 0}}
  - {{op: dropout, name: drop, p: 0.25}}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root: Path = tmp_path_factory.mktemp("drops")
    (root / "gpu_drops.yaml").write_text(SPEC.format(target=current_target()), encoding="utf-8")
    plan = plan_file(root / "gpu_drops.yaml")
    write_files(render_all([module_of(plan)]), root / "generated")
    build_extensions([Request(root / "generated" / plan.spec.name, plan.spec.targets)])
    return fusegen.load(plan.spec.name, root / "generated")


@pytest.fixture
def module(built):
    made = built()
    made.fusegen_strict = True
    return made


def expected(module, x, state: int):
    """The result of a call after torch.manual_seed(state)."""
    torch.manual_seed(state)
    return x * module.fusegen_factors("drop", module.fusegen_seed("cuda"), x.shape).float()


@pytest.mark.parametrize("sizes", [(300, 1024), (300, 1022), (7, 33), (3, 5, 64)], ids=str)
def test_factors_are_those_of_pytorchs_operators(sizes, module) -> None:
    x = torch.randn(*sizes, device="cuda", requires_grad=True)
    exact = expected(module, x.detach(), 5)
    torch.manual_seed(5)
    result = module(x)
    assert torch.equal(result, exact)
    result.backward(x.detach())
    assert torch.equal(x.grad, exact)


def test_checkpoints_draw_the_same_again(module) -> None:
    x = torch.ones(64, 1024, device="cuda", requires_grad=True)
    exact = expected(module, x.detach(), 6)
    torch.manual_seed(6)
    result = checkpoint(module, x, use_reentrant=False)
    torch.manual_seed(7)
    result.sum().backward()
    assert torch.equal(x.grad, exact)


def test_each_replay_of_a_graph_draws_anew(module) -> None:
    x = torch.ones(64, 1024, device="cuda")
    exact = expected(module, x, 8)
    module(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = module(x)
    graph.replay()
    first = result.clone()
    graph.replay()
    assert not torch.equal(result, first)
    torch.manual_seed(8)
    graph.replay()
    assert torch.equal(result, exact)


def test_compiled_modules_follow_the_generator(module) -> None:
    x = torch.ones(64, 1024, device="cuda")
    compiled = torch.compile(module, fullgraph=True)
    torch.manual_seed(9)
    first, second = compiled(x), compiled(x)
    assert not torch.equal(first, second)
    torch.manual_seed(9)
    assert torch.equal(compiled(x), first)


@pytest.mark.parametrize("p", [0.25, 1.0])
def test_infinities_and_nan_as_nn_dropout(p: float, module) -> None:
    """What is dropped of them is NaN; of numbers beside them it is 0."""
    module.drop.p = p
    x = torch.tensor([torch.inf, torch.nan, 1.0], device="cuda").repeat(400, 1)
    ours, theirs = module(x), torch.nn.Dropout(p)(x)
    for column in range(3):
        kinds = [set(each[:, column].nan_to_num(nan=-1.0).unique().tolist()) for each in (ours, theirs)]
        assert kinds[0] == kinds[1]
