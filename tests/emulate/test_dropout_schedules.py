"""Dropout and drop path in every kernel: what an element is multiplied with does not depend on the schedule."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import EmulationError  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from tests.emulate.building import forced_shapes, kernels_of, module_class, write  # noqa: E402

pytestmark = pytest.mark.torch

SPEC = """\
fusegen: 1
name: {name}
dims: {{batch: 64, width: 64}}
arguments: {{width: {{type: dim}}, p: {{type: float}}}}
inputs: {{x: [batch, width]{inputs}}}
dtypes: [float32, bfloat16]
chain:
{chain}"""
ROWS = """\
  - {op: dropout, name: first, p: p}
  - {op: layer_norm, name: norm}
  - {op: dropout, name: second}
  - {op: drop_path, name: path, p: 0.5}
  - {op: add, input: residual}
"""
COLUMNS = """\
  - {op: dropout, name: first, p: p}
  - {op: batch_norm, name: norm}
  - {op: dropout, name: second}
"""
# Groups of channels, in rows and by themselves, and a drop path before rows are reduced.
GROUPS = """\
  - {op: drop_path, name: path, p: 0.5}
  - {op: group_norm, name: norm, num_groups: 2}
  - {op: dropout, p: p}
  - {op: add, parameter: bias, shape: [width], init: zeros}
"""
CHAINS = {"rows": ROWS, "columns": COLUMNS, "groups": GROUPS}
SCHEDULES = ("automatic", "persistent", "two_pass", "twice a share", "l2")
# rows, channels: aligned vectors of 8 and of 4, and others.
SIZES = ((33, 64), (9, 66), (5, 34), (70, 12))
LIMITS = {torch.float64: 1e-11, torch.float32: 2e-4, torch.bfloat16: 1e-2, torch.int64: 0.0}


@pytest.fixture(scope="module")
def built(tmp_path_factory, emulation_cache):
    root, known = tmp_path_factory.mktemp("dropouts"), {}

    def find(name: str, mode_name: str):
        if name not in known:
            inputs = ", residual: [batch, width]" if "residual" in CHAINS[name] else ""
            text = SPEC.format(name=f"drop_{name}", inputs=inputs, chain=CHAINS[name])
            plan = write(f"drop_{name}", text, root)
            known[name] = plan, module_class(plan, root)
        plan, cls = known[name]
        mode = next(mode for mode in plan.modes if mode.name == mode_name)
        return plan, cls, mode, kernels_of(root / plan.spec.name, mode, emulation_cache)

    return find


def prepared(plan, cls, mode, rows: int, channels: int):
    torch.manual_seed(rows)
    module = cls(channels, 0.25)
    for parameter in module.parameters():
        parameter.data.uniform_(0.5, 1.5)
    tensors = {name: torch.randn(rows, channels) for name in (*plan.spec.inputs, "grad_y")}
    return module, {name: value.to(getattr(torch, mode.roles["activation"])) for name, value in tensors.items()}


# Compiling takes longest.
CASES = [("rows", "bfloat16"), ("columns", "bfloat16"), ("groups", "float64")]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("name", "mode_name"), CASES)
def test_every_schedule_drops_the_same(name: str, size, mode_name: str, built) -> None:
    """Beside autograd in double precision, with the factors as PyTorch's operators make them of the seed."""
    plan, cls, mode, library = built(name, mode_name)
    module, tensors = prepared(plan, cls, mode, *size)
    expected = tail_reference(plan, module, tensors, mode, training=True)
    variant, ran = plan.variants[0], 0
    for seed, schedule in enumerate(SCHEDULES):
        for misalign in ("", "elements"):
            tail = EmulatedTail(plan, variant, library, module)
            try:
                found = tail.run(tensors, mode, shapes=forced_shapes(schedule), seed=seed, misalign=misalign).values
            except EmulationError as error:
                assert schedule != "automatic" and str(error).endswith("CUDA error 9"), error  # there is none
                continue
            ran += 1
            for key in found.keys() & expected.keys():
                value, exact = found[key], expected[key]
                difference = (value.double().reshape(exact.shape) - exact).abs().max()
                scale = max(1.0, float(exact.abs().max()))
                assert float(difference) <= LIMITS[value.dtype] * scale, (schedule, misalign, key)
                if key == "y" and name == "columns":
                    assert torch.equal(value == 0, exact == 0), (schedule, misalign)
    assert ran >= 4


def test_what_is_drawn_is_no_tensor(built) -> None:
    """The backward pass takes the seed, and no mask."""
    plan, *_ = built("rows", "bfloat16")
    train, evaluation = plan.variants
    assert [tensor.name for tensor in train.saved] == ["norm_mean", "norm_rstd"]
    for program in (train.forward, train.backward):
        assert [tensor.name for tensor in program.inputs if tensor.role == "seed"] == ["seed"]
        assert program.draws_samples
    assert not evaluation.forward.draws and not evaluation.backward.draws
