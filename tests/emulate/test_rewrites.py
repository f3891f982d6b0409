"""Each of the planner's rewrites switched off: the kernels are other ones, and as exact."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.ir.rewrites import REWRITES  # noqa: E402
from fusegen.plan.load import plan_document  # noqa: E402
from fusegen.render.cuda import render_kernels  # noqa: E402
from fusegen.spec.model import Rewrites  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.subjects.subject import spread_out  # noqa: E402
from tests.emulate.building import write  # noqa: E402

SPEC = """\
fusegen: 1
name: {name}
dims: {{batch: 32, width: 16}}
arguments: {{width: {{type: dim}}}}
inputs: {{x: [batch, width]}}
dtypes: [float32]
rewrites: {{{off}}}
chain:
  - {{op: linear, name: fc, out_features: width}}
  - {{op: mul, parameter: scale, shape: [width], init: ones}}
  - {{op: {norm}, name: norm{keys}}}
  - {{op: mul, constant: 2}}
  - {{op: add, parameter: shift, shape: [width], init: zeros}}
  - {{op: silu}}
"""
ROWS, WIDTH = 9, 24
OFF = {
    "batch_norm, how elements are computed": ("affine", "norm_gradients"),
    "batch_norm, what is reduced": ("moments", "sums", "norms"),
    "rms_norm": tuple(REWRITES),
}


class Original(nn.Module):
    def __init__(self, width, norm):
        super().__init__()
        self.fc, self.norm = nn.Linear(width, width), norm
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return nn.functional.silu(self.norm(self.fc(x) * self.scale) * 2 + self.shift)


def spec(off, name="rewritten", norm="batch_norm"):
    keys = ", track_running_stats: false" if norm == "batch_norm" else ""
    return SPEC.format(name=name, off=", ".join(f"{each}: false" for each in off), norm=norm, keys=keys)


def planned(off):
    return plan_document(parse_yaml(spec(off), "spec.yaml"))


def test_the_spec_has_a_switch_for_each() -> None:
    assert list(Rewrites.model_fields) == list(REWRITES)


@pytest.mark.parametrize("name", REWRITES)
def test_what_is_switched_off_is_not_made(name) -> None:
    plans = [planned(off) for off in ((), (name,))]
    made, without = ({each for p in plan.programs for each in p.rewrites} for plan in plans)
    assert name in made and name not in without
    assert not {each for p in planned(REWRITES).programs for each in p.rewrites}
    assert len({render_kernels(plan) for plan in plans}) == 2


@pytest.fixture(scope="module")
def modules(tmp_path_factory, emulation_cache):
    """The module's class by what is switched off."""
    root, found = tmp_path_factory.mktemp("rewrites"), {}
    for index, (name, off) in enumerate(OFF.items()):
        plan = write(f"rewritten_{index}", spec(off, f"rewritten_{index}", name.partition(",")[0]), root)
        package = emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)
        found[name] = getattr(package, plan.spec.class_name)
    return found


@pytest.mark.torch
@pytest.mark.nvcc
@pytest.mark.parametrize("off", OFF)
def test_as_exact_without(modules, off) -> None:
    cls = modules[off]
    torch.manual_seed(3)
    norm = nn.RMSNorm(WIDTH, eps=1e-5) if "rms_norm" in off else nn.BatchNorm1d(WIDTH, track_running_stats=False)
    original, fused = Original(WIDTH, norm), cls(WIDTH)
    spread_out(original)
    fused.load_state_dict(original.state_dict())
    fused.fusegen_strict = True
    x = (torch.randn(ROWS, WIDTH) * 3 + 5).requires_grad_()
    found = compare_module(fused, copy.deepcopy(original), [x])
    assert [item.name for item in found if not item.ok] == [] and len(found) > 7
