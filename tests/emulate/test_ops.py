"""Each op of the catalogue by itself: emitted kernels in double precision against PyTorch, kinks included."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

import fusegen  # noqa: E402
from fusegen.ops import convolution, dimensions, dropout, joining, losses, matmul, parts, pooling, upsampling  # noqa: E402
from fusegen.ops.catalogue import STEPS  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.modules.plan import Plan  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from tests.emulate.building import kernels_of  # noqa: E402
from tests.emulate.test_reductions import CHAINS as OF_ROWS  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, CHANNELS = 5, 12
SPEC = """\
fusegen: 1
name: {name}
about: One op
dims: {{rows_of_x: 5}}
inputs: {{x: [rows_of_x, 12]{inputs}}}
dtypes: [float32]
chain:
{chain}"""


def summed(*ops: str) -> str:
    """The steps that compute the sum of several functions of x: one package, and so one compilation, for them all."""
    steps = [f"op: {ops[0]}, save: s0"]
    for index, op in enumerate(ops[1:]):
        steps += [f"op: sub, value: s{index}", "op: add, input: x", f"op: {op}"]
        steps += [f"op: add, value: s{index}, save: s{index + 1}"]
    return "; ".join([*steps[:-1], steps[-1].split(", save")[0]])


# By name: the steps, separated by semicolons. x is -7.5, -7.25, ..., so it meets every kink exactly.
CHAINS = {
    "relu": "op: relu",
    "leaky_relu": "op: leaky_relu, negative_slope: 0.25",
    "gelu": "op: gelu",
    "gelu_tanh": "op: gelu, approximate: tanh",
    "sigmoid": "op: sigmoid",
    "tanh": "op: tanh",
    "silu": "op: silu",
    "swish": "op: swish",
    "mish": "op: mish",
    "hardswish": "op: hardswish",
    "softplus": "op: softplus, beta: 2.0, threshold: 3.0",
    "exp": "op: exp",
    "square": "op: square",
    "clamp": "op: clamp, min: -1.5, max: 2.0",
    "clamp_min": "op: clamp, min: -1.5",
    "clamp_max": "op: clamp, max: 2.0",
    "hardtanh": "op: hardtanh, min_val: -1.5, max_val: 2.0",
    "kinks_and_tails": summed(
        "relu6",
        "elu, alpha: 0.5",
        "selu",
        "celu, alpha: 0.5",
        "hardsigmoid",
        "softsign",
        "logsigmoid",
        "abs",
        "neg",
        "prelu, name: one",
        "prelu, name: each, num_parameters: 12, init: -0.5",
    ),
    "shrinks_and_rounding": summed(
        "threshold, threshold: 1.5, value: -1",
        "hardshrink, lambd: 1.5",
        "softshrink, lambd: 1.5",
        "tanhshrink",
        "floor",
        "ceil",
        "round",
        "trunc",
        "sign",
        "expm1",
        "exp2",
        "cast, dtype: bfloat16",
    ),
    "transcendental": summed("sin", "cos", "tan", "atan", "sinh", "cosh", "asinh", "erf", "erfc"),
    # Each result is an operand that the next one takes.
    "inverses": (
        "op: mul, constant: 0.125; op: asin; op: mul, constant: 0.75; op: acos; op: add, constant: 0.75; op: acosh;"
        "op: sub, constant: 1.25; op: atanh; op: exp2; op: log10; op: log1p; op: add, constant: 1; op: log2"
    ),
    # Of e^x and its like: their operands are positive.
    "powers": "op: exp; op: sqrt; op: rsqrt; op: reciprocal; op: pow, exponent: -1.5; op: log; op: pow, exponent: 3",
    "minimum": "op: minimum, input: z; op: minimum, constant: 2.0",
    "maximum": "op: maximum, input: z, swap: true; op: maximum, constant: -2.0",
    "pairs": (
        "op: logaddexp, input: z; op: atan2, input: z, swap: true; op: hypot, constant: 2.0; op: hypot, input: z;"
        "op: logaddexp, parameter: b, shape: [12], init: randn"
    ),
    "add_sub": (
        "op: relu; op: add, parameter: b, shape: [12], init: randn; op: sub, input: z, swap: true;op: sub, parameter: b"
    ),
    "mul_div": (
        "op: relu, save: a; op: div, parameter: b, shape: [1], init: 2.0; op: mul, input: z;"
        "op: mul, value: a, detach: true"
    ),
    "batch_norm": "op: relu; op: batch_norm, name: bn",
    "group_norm": "op: group_norm, name: gn, num_groups: 3",
    "layer_norm": "op: layer_norm, name: ln, bias: false; op: gelu; op: instance_norm, name: inn",
    "rms_norm": "op: rms_norm, name: rms",
    "layer_then_group": "op: layer_norm, name: ln; op: group_norm, name: gn, num_groups: 3",
    "group_then_batch": "op: group_norm, name: gn, num_groups: 3; op: batch_norm, name: bn",
    "linear": "op: linear, name: gemm, out_features: 12, bias: false; op: relu",
}


def planned(name: str, chain: str, directory: Path) -> Plan:
    steps = "".join(f"  - {{{step.strip()}}}\n" for step in chain.split(";"))
    inputs = ", z: [rows_of_x, 12]" if "input: z" in chain else ""
    path = directory / "spec.yaml"
    path.write_text(SPEC.format(name=f"op_{name}", inputs=inputs, chain=steps), encoding="utf-8")
    return plan_file(path)


def test_every_op_is_here() -> None:
    ops = {op for step in STEPS for op in get_args(step.model_fields["op"].annotation)}
    of_rows = [step for other in OF_ROWS.values() for step in other.steps]  # test_reductions.py has them
    # test_convolutions.py, test_own_weights.py, test_bmm.py, test_parts.py, test_dropout_schedules.py,
    # test_cross_entropy.py, test_pooling.py, test_upsampling.py, test_joining.py, test_over_positions.py and, of masks,
    # test_inputs.py have them.
    elsewhere = (*convolution.STEPS, *matmul.STEPS, *parts.STEPS, *dropout.STEPS, *losses.STEPS, *pooling.STEPS)
    elsewhere += (*dimensions.STEPS, *joining.STEPS, *upsampling.STEPS)
    ops -= {op for step in elsewhere for op in step.ops()}
    ops -= {"masked_fill"}
    assert ops == set(re.findall(r"op: (\w+)", " ".join([*CHAINS.values(), *of_rows])))


def test_a_chain_whose_gradient_reads_nothing(tmp_path: Path) -> None:
    render_all([module_of(planned("plus", "op: add, input: z", tmp_path))])


@pytest.mark.parametrize("name", CHAINS)
def test_op(name: str, tmp_path: Path, emulation_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch's gradient has 1/6 to the digits of a float, in double too.
    monkeypatch.setattr(F, "hardsigmoid", lambda x: F.relu6(x + 3) / 6)
    plan = planned(name, CHAINS[name], tmp_path)
    write_files(render_all([module_of(plan)]), tmp_path / "ops")
    module = fusegen.load(plan.spec.name, tmp_path / "ops")()
    mode = plan.modes[-1]
    package = tmp_path / "ops" / plan.spec.name
    library = kernels_of(package, mode, emulation_cache, checked=False, optimised=False)
    x = (torch.arange(ROWS * CHANNELS).double().reshape(ROWS, CHANNELS) - 30) / 4
    grad = torch.linspace(-1, 2, x.numel()).double().reshape(x.shape)
    z = torch.where(torch.arange(CHANNELS) % 2 == 0, x, x.flip(1))  # ties in every other column
    tensors = {plan.chain.source.name: x, "z": z, "grad_y": grad}
    for variant, training in ((plan.variants[0], True), (plan.variants[-1], False)):
        expected = tail_reference(plan, module, tensors, mode, training)
        found = EmulatedTail(plan, variant, library, module).run(tensors, mode).values
        for key in found.keys() & expected.keys():
            exact = expected[key].reshape(found[key].shape)
            assert torch.allclose(found[key], exact, rtol=1e-11, atol=1e-11), (key, found[key] - exact)
