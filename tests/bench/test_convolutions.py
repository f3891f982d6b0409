"""Shapes and work of chains behind a convolution."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fusegen.bench.bench import Bench
from fusegen.bench.ceilings import Ceilings
from fusegen.bench.names import EVAL, STEP
from fusegen.bench.options import Options
from fusegen.bench.shapes import sizes_of
from fusegen.bench.work import contraction_work, convolution_work
from fusegen.plan.sizes.chain_sizes import typical
from tests.bench.standins import ScriptedClock, stand_in
from tests.chains.convolutions import EXPRESSIBLE


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory):
    root: Path = tmp_path_factory.mktemp("convolution")
    text = EXPRESSIBLE["residual_hardswish"].spec("bench_convolution")
    return stand_in(root, "bench_convolution", text.replace("{", "{{").replace("}", "}}"))


def test_a_shape_is_that_of_the_input(subject) -> None:
    found = sizes_of(subject.plan, "2x3x2x4x3")
    assert found.given == (2, 3, 2, 4, 3) and found.result == (2, 8, 4, 8, 6) and found.rows == 2 * 4 * 8 * 6
    assert [found.symbols[f"out_{name}"] for name in ("depth", "height", "width")] == [4, 8, 6]
    assert sizes_of(subject.plan, "typical") == typical(subject.plan.single)
    with pytest.raises(ValueError, match="it takes those of the input, 5"):
        sizes_of(subject.plan, "2x3x4")


def test_the_convolution_alone(subject) -> None:
    plan, size = subject.plan.single, sizes_of(subject.plan, "2x3x2x4x3")
    _, original, inputs = subject.pair(size, plan.modes[0], seed=1)
    layer, grad = original.conv_transpose, torch.randn(size.result)
    forward = contraction_work(plan, plan.modes[0], original, inputs, grad, EVAL).call()
    bias = layer.bias.view(-1, 1, 1, 1)
    torch.testing.assert_close(forward + bias, layer(inputs[0]))
    assert forward.is_contiguous(memory_format=torch.channels_last_3d)
    of_input, of_weight = contraction_work(plan, plan.modes[0], original, inputs, grad, STEP).call()
    expected = torch.autograd.grad(layer(inputs[0]), (inputs[0], layer.weight), grad)
    torch.testing.assert_close((of_input, of_weight), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_of_a_depthwise_convolution_alone(subject, dtype) -> None:
    """In float32 of contiguous operands, as the fused module's gradients are; in 16 bits in the library's format."""
    original = torch.nn.Sequential(torch.nn.Conv3d(4, 4, 3, groups=4)).to(dtype)
    step = SimpleNamespace(name="0", spatial=3, transposed=False)
    x = torch.randn(2, 4, 5, 6, 7, dtype=dtype, requires_grad=True)
    grad = torch.randn_like(original(x))
    found = convolution_work(step, original, x, grad, STEP).call()
    assert found[0].is_contiguous() or dtype != torch.float32
    torch.testing.assert_close(found, torch.autograd.grad(original(x), (x, original[0].weight), grad))


def test_the_tail_is_what_the_convolution_leaves(subject) -> None:
    clock = ScriptedClock((2.0, 10.0, 15.0, 20.0))
    options = Options(against=("eager",), dtypes=("fp32",), modes=(EVAL,))
    run = Bench(
        clock=clock,
        ceilings=Ceilings(3000.0, {}),
        options=options,
        command="",
        run="",
        write=lambda rows: None,
        say=lambda line: None,
    )
    run.measure(subject, sizes_of(subject.plan, "2x3x2x4x3"), "fp32")
    (fused,) = [row for row in run.rows if row.subject == "fused"]
    assert (fused.contraction_ms, fused.tail_ms, fused.tail_over_floor) == (10.0, 5.0, 2.5)
