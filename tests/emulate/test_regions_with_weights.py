"""Weights in modules of several regions, on the emulator: the module's own, and those that parametrizations compute."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402
from torch.nn.utils import weight_norm as old_weight_norm  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.ir.rewrites import REWRITES  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

# Both forms of a weight, a bias, a parameter that two regions take.
OWN = """\
fusegen: 1
name: own_block
dims: {batch: 64, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}, start: {type: float, default: 0.1}}
inputs: {x: [batch, features]}
dtypes: [float32]
chain:
  - {op: matmul, parameter: up, shape: [features, hidden], init: start}
  - {op: layer_norm, name: norm}
  - {op: mul, parameter: scale, shape: [1], init: ones}
  - {op: matmul, parameter: down, shape: [features, hidden], init: randn, transposed: true, bias: shift, bias_init: 0.5}
  - {op: mul, parameter: scale}
  - {op: add, input: x}
"""
# `gate` is a layer that PyTorch calls; without any of the planner's rewrites.
GATED = f"""\
fusegen: 1
name: gated_block
dims: {{batch: 64, features: 32, hidden: 48}}
arguments: {{features: {{type: dim}}, hidden: {{type: dim}}}}
inputs: {{x: [batch, features]}}
dtypes: [float32]
rewrites: {{{", ".join(f"{name}: false" for name in REWRITES)}}}
chain:
  - {{op: linear, name: gate, out_features: hidden}}
  - {{op: silu, save: opened}}
  - {{op: linear, from: x, name: up, out_features: hidden}}
  - {{op: mul, value: opened}}
  - {{op: rms_norm, name: norm, eps: 0.00001}}
  - {{op: mul, constant: 3}}
  - {{op: matmul, parameter: down, shape: [hidden, features], init: randn}}
  - {{op: mul, constant: 2}}
  - {{op: add, input: x}}
"""


@pytest.fixture(scope="module")
def blocks(tmp_path_factory, emulation_cache):
    """Plans and emulated packages."""
    root, found = tmp_path_factory.mktemp("regions"), {}
    for name, text in (("own_block", OWN), ("gated_block", GATED)):
        (root / f"{name}.yaml").write_text(text)
        plan = planned_file(root / f"{name}.yaml")
        write_files(render_all([plan]), root / "generated")
        found[name] = plan, emulate_package(root / "generated" / name, cache=emulation_cache, checked=False)
    return found


class OwnBlock(nn.Module):
    def __init__(self, features, hidden, start=0.1):
        super().__init__()
        self.up = nn.Parameter(torch.full((features, hidden), start))
        self.norm, self.scale = nn.LayerNorm(hidden), nn.Parameter(torch.ones(1))
        self.down = nn.Parameter(torch.randn(features, hidden))
        self.shift = nn.Parameter(torch.full((features,), 0.5))

    def forward(self, x):
        y = self.norm(x @ self.up) * self.scale
        return F.linear(y, self.down, self.shift) * self.scale + x


def test_weights_of_the_modules_own(blocks) -> None:
    plan, package = blocks["own_block"]
    assert [region.name for region in plan.regions] == ["up", "down"]
    report = Suite(Subject(plan, package, "cpu", OwnBlock), full=False).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and len(report.findings) > 100
    assert any("fp32_split" in str(each) for each in report.findings)
    assert "up=[6, 9]" in repr(package.OwnBlock(6, 9))


def test_without_rewrites(blocks) -> None:
    plan, package = blocks["gated_block"]
    assert not {name for each in plan.plans for program in each.programs for name in program.rewrites}
    report = Suite(Subject(plan, package, "cpu"), full=False).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and len(report.findings) > 100


class Counted(nn.Module):
    """A parametrization of a user's that notes how often it computes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count += 1
        return torch.tanh(x) * torch.rand_like(x[..., :1])


KINDS = {
    "of a layer behind which kernels run": lambda m: parametrizations.spectral_norm(m.up),
    "of a layer that PyTorch calls": lambda m: parametrizations.spectral_norm(m.gate),
    "of the module's own": lambda m: parametrizations.weight_norm(m, "down"),
    "old weight norm": lambda m: (old_weight_norm(m.up), old_weight_norm(m.gate)),
    "of a user's": lambda m: parametrize.register_parametrization(m.up, "weight", Counted()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_parametrised_weights(blocks, kind) -> None:
    """Gradients reach the originals, and buffers move, as in the chain in PyTorch's operators."""
    torch.manual_seed(1)
    module, x = blocks["gated_block"][1].GatedBlock(6, 9), torch.randn(2, 5, 6, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KINDS[kind](module)
    module.fusegen_strict = True
    state, drawn = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    weights = {name: getattr(module, name).weight for name in ("up", "gate")} if kind == "old weight norm" else {}
    assert module.fusegen_kernels(x)
    assert all(getattr(module, name).weight is weight for name, weight in weights.items())
    assert torch.equal(torch.get_rng_state(), drawn)
    for train in (True, False):
        module.train(train)
        results = []
        for call in (module, module.fusegen_reference):
            module.load_state_dict(state)
            torch.manual_seed(2)
            y = call(x)
            gradients = torch.autograd.grad(y.square().sum(), [x, *module.parameters()])
            results.append([y, *gradients, *copy.deepcopy(list(module.buffers()))])
        for mine, theirs in zip(*results, strict=True):
            assert (mine - theirs).double().norm() <= 1e-5 * theirs.double().norm()


def test_pieces_of_each_own_weight(blocks) -> None:
    """Pieces that are to be kept are kept for each region; a weight that a parametrization computes has none."""
    module, x = blocks["own_block"][1].OwnBlock(6, 9, precision="fp32_split"), torch.randn(5, 6)
    module._fusegen_split_always = module.fusegen_strict = module.fusegen_keep_pieces = True
    module.eval()
    with torch.no_grad():
        before = module(x)
        assert len(module.__dict__["_fusegen_kept"]) == 2
        assert torch.equal(module(x), before)
        copied = copy.deepcopy(module)
        assert torch.equal(copied(x), before) and torch.equal(
            pickle.loads(pickle.dumps(module.state_dict()))["up"], module.up
        )
        parametrizations.weight_norm(module, "down")
        assert torch.allclose(module(x), before, rtol=1e-5, atol=1e-5)
        module.parametrizations.down.original0.mul_(2)
        assert torch.allclose(module(x), module.fusegen_reference(x), rtol=1e-5, atol=1e-5)
        module.up.mul_(2)
        assert torch.allclose(module(x), module.fusegen_reference(x), rtol=1e-5, atol=1e-5)
        assert torch.allclose(copy.deepcopy(module)(x), module(x), rtol=1e-5, atol=1e-5)
