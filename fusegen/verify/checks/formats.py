"""Memory formats and dimensions of images: results come in the format that PyTorch's would have, and
inputs in any; what PyTorch takes without a batch is taken, and what it refuses is refused."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from fusegen.verify.checks.behaviour import summed_up
from fusegen.verify.checks.compared import compare_module
from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.runs.run import CHANNELS_LAST, has_batch, has_group_norm_of_cpu, run, wanting


def memory_formats_kept(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """`memory_formats` of a module of several layers with a softmax or a reduction over the channels or a group norm,
    whose result may keep the format of its input. In PyTorch their results are contiguous (a group norm's on CUDA), and
    decide together with what meets them."""
    return memory_formats(fused, original, inputs, kept=True)


def memory_formats(
    fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor], kept: bool = False
) -> list[Comparison]:
    """Inputs in both formats, inputs without a batch, and inputs with a dimension too many. kept: whether a result of
    several layers may have the format of the input where PyTorch's has another one."""
    found = []
    last = CHANNELS_LAST.get(inputs[0].dim())
    for format_ in (torch.contiguous_format, *([last] if last else [])):
        label = str(format_).removeprefix("torch.")
        given = [wanting(_in_format(x.detach(), format_)) for x in inputs]
        found += summed_up(label, compare_module(fused, original, given, train=True))
        mine = run(fused, given, None, train=False).output
        # A result without channels has one format. Several layers', and a product's, may have another one than the
        # input's.
        alike = mine.is_contiguous(memory_format=format_ if mine.dim() == inputs[0].dim() else torch.contiguous_format)
        if not alike or (hasattr(fused, "_fusegen_formats") and not kept):
            alike = _strides(mine) == _strides(run(original, given, None, train=False).output)
        if not has_group_norm_of_cpu(original, inputs[0]):
            found.append(Comparison.statement(f"{label}, the result's format", alike, f"strides {mine.stride()}"))
    own = _own_dimensions(fused)
    batched = [index not in own and has_batch(x, inputs[0]) for index, x in enumerate(inputs)]
    single = [wanting((x.detach()[0] if has else x.detach()).clone()) for x, has in zip(inputs, batched, strict=True)]
    refusal = _refusal(original, single)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch's operators, which run then
        raised = _refusal(fused, single)
        if raised is None and refusal is None:
            found += summed_up("without a batch", compare_module(fused, original, single, train=False))
        else:
            wanted = ValueError if _needs_batch(fused) else refusal
            note = f"raises {raised and raised.__name__}, eager {refusal and refusal.__name__}"
            found.append(Comparison.statement("without a batch", raised is wanted, note))
    many = _refusal(fused, [x.detach()[None] if has_batch(x, inputs[0]) else x.detach() for x in inputs])
    return [*found, Comparison.statement("a dimension too many refused", many is ValueError)]


def _in_format(x: Tensor, format_: torch.memory_format) -> Tensor:
    """A copy in the format, of what has the dimensions for it."""
    takes = format_ is torch.contiguous_format or CHANNELS_LAST.get(x.dim()) is format_
    return x.clone(memory_format=format_) if takes else x.clone()


def _strides(x: Tensor) -> list[int]:
    """Those that say where elements are: not of dimensions that have one."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def _own_dimensions(module: nn.Module) -> Collection[int]:
    """Which inputs of a generated module have as many dimensions as its spec says, whatever the first one has."""
    return getattr(getattr(module, "_fusegen_dimensions", None), "own", None) or ()


def _needs_batch(module: nn.Module) -> bool:
    """Whether a generated module takes images with a batch alone, as a layer would take dimension 0 for one."""
    return bool(getattr(getattr(module, "_fusegen_dimensions", None), "positions", 0))


def _refusal(module: nn.Module, inputs: Sequence[Tensor]) -> type[Exception] | None:
    """What a call with these inputs raises."""
    try:
        run(module, inputs, None, train=False)
    except (ValueError, RuntimeError, IndexError) as problem:
        return type(problem)
    return None
