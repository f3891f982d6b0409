"""A small result that is wrong altogether is seen, and one that rounding explains is not."""

from __future__ import annotations

from typing import get_args

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.ops import losses, masks, reductions  # noqa: E402
from fusegen.ops.catalogue import STEPS  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.verify.checks.tails import applies, points, sweep  # noqa: E402
from tests.plan.planning import ROOT, planned  # noqa: E402
from tests.verify.functions_of_one import functions_of_one  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Of(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def found(fused, eager, dtype):
    return sweep(Of(fused), Of(eager), dtype, "cpu", 64)


EAGER = {
    "silu": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
    "hardswish": F.hardswish,
    "softplus": F.softplus,
    "square": torch.square,
    "clamp": lambda x: torch.clamp(x, -0.5, 0.75),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", EAGER)
def test_eager_passes_beside_itself(name: str, dtype) -> None:
    assert all(tail.ok for tail in found(EAGER[name], EAGER[name], dtype).values())


def flushed(x):
    """As with a reciprocal that flushes: 1 / (1 + exp(-x)) is 0 where it is less than 2^-126."""
    gate = torch.sigmoid(x.float())
    return (x.float() * torch.where(gate < 2.0**-126, 0.0, gate)).to(x.dtype)


def tail_less(x):
    return torch.where(x < -20, 0.0, F.silu(x))


def unrounded_root(x):
    """(x + 3) x / 6 by its slope x / 3 + 1 / 2, which is 1.5e-8 and not 0 at its root."""
    return torch.where(x.abs() < 3, x * x * 0.16666667 + 0.5000001 * x, F.hardswish(x))


WRONG = {
    "flushed": (flushed, F.silu, (torch.float32, torch.bfloat16), "output"),
    "tail-less": (tail_less, F.silu, (torch.float32, torch.bfloat16), "output"),
    "another root": (unrounded_root, F.hardswish, (torch.float32,), "gradient"),
    "infinite too early": (lambda x: torch.where(x > 87, torch.inf, torch.exp(x)), torch.exp, DTYPES[:2], "output"),
    "a NaN": (lambda x: torch.where(x == 3, torch.nan, torch.tanh(x)), torch.tanh, DTYPES, "output"),
    "subnormal results": (lambda x: torch.where(x < -88, 0.0, torch.exp(x)), torch.exp, DTYPES[:2], "output"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_a_tail_is_seen(name: str) -> None:
    wrong, eager, dtypes, quantity = WRONG[name]
    for dtype in dtypes:
        assert not found(wrong, eager, dtype)[quantity].ok, dtype


def test_a_result_with_other_rounding_passes() -> None:

    def rounded_once(x):
        wide = x.double()
        return (wide * torch.sigmoid(wide)).to(x.dtype)

    for dtype in DTYPES:
        other = found(rounded_once, F.silu, dtype)
        assert all(tail.ok for tail in other.values())


def test_points() -> None:
    for dtype, count in ((torch.bfloat16, 2**16 - 2**8), (torch.float16, 2**16 - 2**11)):
        assert len(points(dtype)) == count and points(dtype).unique().numel() == count - 1  # zero twice
    x = points(torch.float32)
    tiny = torch.finfo(torch.float32).smallest_normal
    assert x.isfinite().all() and (x[1:] >= x[:-1]).all() and len(x) > 90_000
    assert {-torch.finfo(torch.float32).max, 0.0, tiny, 1.5, 3.0, -3.0} <= set(x.double().tolist())
    assert (x[x != 0].abs() < tiny).sum() > 50


def test_what_it_applies_to(tmp_path) -> None:
    assert applies(planned(tmp_path, "op: mul, constant: 2", "op: silu"))
    assert not applies(planned(tmp_path, "op: layer_norm, name: ln, affine: false"))
    assert not applies(planned(tmp_path, "op: add, parameter: b, shape: [width], init: randn"))
    assert not any(applies(plan_file(path)) for path in sorted((ROOT / "specs").glob("*.yaml"))[:1])


def test_every_op_is_swept_that_is_a_function_of_one_value(tmp_path) -> None:
    swept = {step.op for plan in functions_of_one(tmp_path).values() for step in plan.spec.chain}
    every = {op for step in STEPS for op in get_args(step.model_fields["op"].annotation)}
    of_rows = {step.ops()[0] for step in reductions.STEPS}
    others = {
        op for step in STEPS if step.anchor or not step.has_kernels or step.divides or step.draws for op in step.ops()
    }
    others |= {op for step in (*masks.STEPS, *losses.STEPS) for op in step.ops()}
    norms = {"batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"}
    assert every - swept == {*norms, "prelu"} | of_rows | others
