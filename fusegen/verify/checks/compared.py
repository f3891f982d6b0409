"""A fused module beside its original: one forward and backward, against double precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusegen.verify.judgement.kink_perturbation import kink_tolerance
from fusegen.verify.judgement.policy import Comparison, compare
from fusegen.verify.judgement.rerun_judgement import judge_by_reruns, moved_runs
from fusegen.verify.references.reference import Reference, reference
from fusegen.verify.runs.run import Run, channel_count, draw_gradient, input_name, row_count, run, runs_in_other_formats


def compare_module(
    fused: nn.Module,
    original: nn.Module,
    inputs: Sequence[Tensor],
    *,
    grad_output: Tensor | None = None,
    autocast_dtype: torch.dtype | None = None,
    dtype: torch.dtype | None = None,
    train: bool = True,
    seed: int = 0,
    exact: Reference | None = None,
) -> list[Comparison]:
    """Compare output, every gradient and the buffers of two modules that hold the same state_dict.

    Where the original raises, the fused module has to raise the same type. `dtype` is the one that the computation
    rounds to, where that is neither autocast's nor the first input's. `exact` is a double precision reference that was
    made earlier from the same data. Neither module's state is changed.
    """
    if not same_state(fused, original):
        return [Comparison.statement("state_dict", False, "the modules do not hold the same state to start from")]
    dtype = dtype or autocast_dtype or inputs[0].dtype
    if grad_output is None:
        grad_output = draw_gradient(original, inputs, autocast_dtype=autocast_dtype, train=train, seed=seed)
    try:
        eager_run = run(original, inputs, grad_output, autocast_dtype=autocast_dtype, train=train)
    except (ValueError, RuntimeError) as problem:
        if "CUDA" in str(problem):
            raise  # the device's trouble, which would make the fused module fail alike
        return [_raises_alike(fused, inputs, grad_output, autocast_dtype, train, problem)]
    if exact is None:
        exact = reference(original, inputs, grad_output, train=train, dtype=dtype)
    made = run(fused, inputs, grad_output, autocast_dtype=autocast_dtype, train=train)
    about = Data(original, inputs, grad_output, dtype, autocast_dtype, train, seed)
    return judge_run(made, eager_run, exact, about)


@dataclass(frozen=True)
class Data:
    """What a run was made of. dtype: the one that the computation rounds to."""

    original: nn.Module
    inputs: Sequence[Tensor]
    grad_output: Tensor
    dtype: torch.dtype
    autocast_dtype: torch.dtype | None = None
    train: bool = True
    seed: int = 0


def judge_run(made: Run, eager: Run, exact: Reference, data: Data) -> list[Comparison]:
    """Judge a run of a fused module; what fails again, by several runs of eager PyTorch and by what elements next to a
    kink decide."""
    of, inputs, grad_output, dtype = data.original, data.inputs, data.grad_output, data.dtype
    autocast, train = data.autocast_dtype, data.train
    also = runs_in_other_formats(of, inputs, grad_output, autocast_dtype=autocast, train=train)
    found = compare_runs(made, eager, exact, dtype, also)
    if all(item.ok for item in found):
        return found
    moved = moved_runs(of, inputs, grad_output, dtype=dtype, autocast_dtype=autocast, train=train, seed=data.seed)

    def judged(one: Run, first: list[Comparison]) -> list[Comparison]:
        several = compare_runs(one, eager, exact, dtype, [*also, *moved])
        return [judge_by_reruns(*each, dtype) for each in zip(first, several, strict=True)]

    found = judged(made, found)
    if all(item.ok for item in found):
        return found
    tolerance = kink_tolerance(of, inputs, grad_output, dtype=dtype, train=train, seed=data.seed)
    if tolerance is None:
        return found
    nearer = tolerance.nearer(made, exact.run)
    second = judged(nearer, compare_runs(nearer, eager, exact, dtype, also))
    return [tolerance.judged(*each) for each in zip(found, second, strict=True)]


def compare_runs(
    fused: Run, eager: Run, exact: Reference, dtype: torch.dtype, also: Sequence[Run] = ()
) -> list[Comparison]:
    """Judge a run that was made earlier.

    `dtype` is the one that the computation rounds to. `also`: eager in other memory formats.
    """
    results = [_same_kinds(fused, eager)]
    dim = exact.channels
    given_names = {input_name(index) for index in range(len(eager.gradients))}
    given = eager.gradients["input"]
    weights = [p for name, p in eager.gradients.items() if p is not None and p.ndim > 2 and name not in given_names]
    dimensions = given.ndim if given is not None else eager.output.ndim
    of_positions = dimensions > 2
    rows, channels = (count(eager.output, dim, dimensions) for count in (row_count, channel_count))
    width = channel_count(given, dim, dimensions) if given is not None else channels
    if channels == 1:  # a value a row: of how many channels, the parameters tell
        channels = max([width, *(p.shape[0] for p in eager.gradients.values() if p is not None and p.ndim)])
    behind = channels  # what an element of the input's gradient is summed over
    if of_positions and weights:  # of a convolution: each position of its kernel
        kernel = math.prod(max(weights, key=Tensor.numel).shape[2:])
        width, behind = width * kernel, behind * kernel
    outputs = (fused.output, eager.output, exact.run.output)
    others = [each.output for each in also]
    results.append(compare("output", *outputs, dtype=dtype, reduction_length=width, left_out=exact.jumped, also=others))
    for name, value in eager.gradients.items():
        other = fused.gradients.get(name)
        if value is None or other is None:
            continue
        expected = exact.run.gradients[name]
        assert expected is not None
        if name in given_names:
            length = behind
            if name != input_name(0):  # of one that is broadcast: a sum over what it lacks
                length = max(length, rows * channels // max(value.numel(), 1))
        else:
            length = rows if value.ndim > 1 else max(rows * channels // max(value.numel(), 1), 1)
        results.append(
            compare(
                f"grad {name}",
                other,
                value,
                expected,
                dtype=dtype,
                reduction_length=length,
                terms=exact.terms.get(name),
                also=[found for each in also if (found := each.gradients[name]) is not None],
            )
        )
    buffers = [each.buffers for each in also]
    return results + compare_buffers(fused.buffers, eager.buffers, exact.run.buffers, dtype, rows, buffers)


def same_state(fused: nn.Module, original: nn.Module) -> bool:
    """Whether the two state_dicts agree in names, order, shapes, dtypes and every bit."""
    a, b = fused.state_dict(), original.state_dict()
    return list(a) == list(b) and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def compare_buffers(
    fused: dict[str, Tensor],
    eager: dict[str, Tensor],
    exact: dict[str, Tensor],
    dtype: torch.dtype,
    rows: int,
    also: Sequence[dict[str, Tensor]] = (),
    prefix: str = "",
) -> list[Comparison]:
    results = []
    for name, value in eager.items():
        other = fused.get(name)
        if other is None:
            continue  # reported with the dtypes and shapes
        if not value.is_floating_point():
            same = torch.equal(other, value)
            results.append(Comparison.statement(prefix + name, same, "" if same else f"{other}, eager {value}"))
        else:
            others = [each[name] for each in also]
            results.append(
                compare(prefix + name, other, value, exact[name], dtype=dtype, reduction_length=rows, also=others)
            )
    return results


def _same_kinds(fused: Run, eager: Run) -> Comparison:
    """Dtypes and shapes of everything, and which gradients exist."""

    def kinds(one: Run) -> dict[str, object]:
        tensors = {"output": one.output} | {f"grad {k}": v for k, v in one.gradients.items()} | one.buffers
        return {k: None if v is None else (v.dtype, tuple(v.shape)) for k, v in tensors.items()}

    a, b = kinds(fused), kinds(eager)
    wrong = [f"{k}: {a.get(k, 'missing')}, eager {b.get(k, 'missing')}" for k in a | b if a.get(k, 0) != b.get(k, 0)]
    return Comparison.statement("dtypes and shapes", not wrong, "; ".join(wrong))


def _raises_alike(
    fused: nn.Module,
    inputs: Sequence[Tensor],
    grad_output: Tensor,
    autocast_dtype: torch.dtype | None,
    train: bool,
    problem: Exception,
) -> Comparison:
    expected = type(problem).__name__
    try:
        run(fused, inputs, grad_output, autocast_dtype=autocast_dtype, train=train)
    except type(problem):
        return Comparison.statement(f"raises {expected}", True)
    except Exception as other:
        return Comparison.statement(f"raises {expected}", False, f"raises {type(other).__name__}: {other}")
    return Comparison.statement(f"raises {expected}", False, "does not raise")
