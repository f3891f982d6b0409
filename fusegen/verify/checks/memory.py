"""What a module keeps for its backward pass, and the most it holds at a time, beside eager."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.plan.programs.epilogue import SPLIT
from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.references.products import matrices
from fusegen.verify.runs.dropout_replay import own_draws
from fusegen.verify.runs.run import channel_dim, draw_gradient, in_other_formats, leaves, row_count, undisturbed, widest

# The allocator rounds every request up to a multiple of this.
_ROUNDING = 512


def footprint(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """Bytes saved for backward: at most eager's, with a sixteenth for statistics, which are kept in float32. Peak of a
    training step (CUDA only): at most eager's and what the fused module saves, one activation at least, with a
    sixteenth of an activation for partial results.

    The fused backward is one operator, which holds what is saved until its end. Eager frees each tensor behind the
    operator that needs it, so that its peak, in the products of the linear layer, has none of them.

    A convolution takes channels_last, and so do kernels that reduce the channels of images: a copy of each input that
    comes in another format is saved.
    The gradient of the weight is made in channels_last, and autograd copies it into the weight's own format. cuDNN has
    other algorithms there, with workspaces of their own: eager's peak is the larger one of both formats.

    A region may keep what it begins with where eager keeps what it makes, which a layer that PyTorch calls behind the
    region keeps, too: as many bytes as these results have.

    An input that varies over some dimensions of rows alone, and that kernels do not read as it is, is copied to one
    value for each row.

    Where float32 operands are split, the pieces of both are saved besides, and those of the gradient are made: as many
    bytes as each has.

    A loss in chunks has all rows in one here: its gradients are there from the forward pass on, which at small sizes
    takes more than chunks save.
    """
    if getattr(fused, "fusegen_chunk", None) is not None:
        fused.fusegen_chunk = 1 << 30  # type: ignore[assignment]
    grad_output = draw_gradient(original, inputs)
    with own_draws(original):
        return _footprint(fused, original, inputs, grad_output)


def _footprint(
    fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor], grad_output: Tensor
) -> list[Comparison]:
    mine, theirs = (saved_bytes(module, inputs) for module in (fused, original))
    dim, channels = channel_dim(original), widest(original, inputs, grad_output)
    rows = row_count(grad_output, dim, inputs[0].ndim)
    statistics = 8 * (rows + channels) + 4 * _ROUNDING
    layers = [each for each in fused.modules() if isinstance(each, nn.modules.conv._ConvNd)]
    copies = layers or (dim == 1 and not _reads_both(fused))
    pieces = _pieces_bytes(fused, original, inputs) + (_bytes(inputs) if copies else 0)
    pieces += _spread_bytes(inputs, _with_channels(grad_output, inputs[0], dim), dim)
    pieces += _kept_results_bytes(fused, inputs)
    found = [_judged("saved for backward", mine, theirs, theirs + theirs // 16 + statistics + pieces)]
    saved = mine
    if inputs[0].device.type == "cuda":
        mine, theirs = (peak_bytes(module, inputs, grad_output) for module in (fused, original))
        for others in in_other_formats(original, inputs):
            theirs = max(theirs, peak_bytes(original, others, grad_output))
        activation = rows * channels * grad_output.element_size()
        limit = theirs + max(saved, activation) + activation // 16 + statistics
        limit += activation + statistics if pieces else 0
        limit += _bytes([layer.weight for layer in layers])
        found.append(_judged("peak of a training step", mine, theirs, limit))
    return found


def _pieces_bytes(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> int:
    """Of the pieces of the product's operands; 0 where it has none. Rows are padded to 16 bytes."""
    if getattr(fused, "fusegen_precision", "") != SPLIT or inputs[0].dtype != torch.float32:
        return 0
    weights = [each.weight for each in original.modules() if isinstance(each, nn.Linear)]
    weight = weights[0] if weights else original.get_parameter(next(iter(matrices(original, inputs, ()))))
    rows = inputs[0].numel() // inputs[0].shape[-1] + weight.numel() // inputs[0].shape[-1]
    return rows * (4 * (inputs[0].shape[-1] + 8) + 8) + 4 * _ROUNDING


def _bytes(tensors: Sequence[Tensor]) -> int:
    """Of tensors, each in an allocation of its own."""
    return sum(tensor.numel() * tensor.element_size() + _ROUNDING for tensor in tensors)


def _with_channels(result: Tensor, first: Tensor, dim: int) -> Tensor:
    """What has the rows of a result, and a dimension of channels in any case."""
    if result.dim() == first.dim():
        return result
    return result.unsqueeze(dim) if result.dim() else first


def _reads_both(fused: nn.Module) -> bool:
    """Whether the kernels of a generated module read both memory formats."""
    known = getattr(type(fused)._fusegen_call, "__globals__", {})  # type: ignore[attr-defined]
    return any(getattr(each, "tiled", False) for each in known.values())


def _spread_bytes(inputs: Sequence[Tensor], like: Tensor, dim: int) -> int:
    """Of inputs with values for some dimensions of rows that are copied for all of them. like: has their dimensions.
    dim: of the channels."""
    found = 0
    for x in inputs[1:]:
        shape = list(x.shape) if x.dim() != 2 or like.dim() == 2 else [x.shape[0], *(1,) * (like.dim() - 2), x.shape[1]]
        shape = [1] * (like.dim() - len(shape)) + shape
        channel = dim % max(like.dim(), 1)
        rows = [size for index, size in enumerate(shape) if index != channel]
        wanted = [size for index, size in enumerate(like.shape) if index != channel]
        varies = [size != 1 for size in rows]
        count = sum(varies)
        as_it_is = shape[channel] != 1 and (all(varies[:count]) or all(varies[len(varies) - count :]))
        if rows != wanted and any(varies) and not as_it_is:
            found += math.prod(wanted) * shape[channel] * x.element_size() + _ROUNDING
    return found


def _kept_results_bytes(fused: nn.Module, inputs: Sequence[Tensor]) -> int:
    """Of the results of regions that are kept."""
    if not hasattr(type(fused), "_fusegen_chain"):
        return 0
    run: Any = fused._fusegen_run_part
    made: dict[int, Tensor] = {}

    def recorded(*args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        made.update(
            (each.untyped_storage().data_ptr(), each) for each in (result if isinstance(result, tuple) else (result,))
        )
        return result

    fused._fusegen_run_part = recorded  # type: ignore[assignment]
    try:
        kept = _saved(fused, inputs)
    finally:
        del fused._fusegen_run_part
    return _bytes([tensor for address, tensor in made.items() if address in kept])


def saved_bytes(module: nn.Module, inputs: Sequence[Tensor]) -> int:
    """Bytes of the distinct tensors that one forward in training keeps, without inputs, parameters and buffers."""
    return sum(tensor.untyped_storage().nbytes() for tensor in _saved(module, inputs).values())


def _saved(module: nn.Module, inputs: Sequence[Tensor]) -> dict[int, Tensor]:
    """These tensors, by the address of their memory."""
    given = leaves(inputs)
    own = {t.untyped_storage().data_ptr() for t in (*given, *module.parameters(), *module.buffers())}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with undisturbed(module), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module.train()(*given)
    return {address: tensor for address, tensor in kept.items() if address not in own}


def peak_bytes(module: nn.Module, inputs: Sequence[Tensor], grad_output: Tensor) -> int:
    """The most that one forward and backward in training allocates at a time, on a CUDA device."""
    given = leaves(inputs)
    with undisturbed(module):
        for _ in range(2):  # the first one lets the library take its workspace
            for tensor in (*given, *module.parameters()):
                tensor.grad = None
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            module.train()(*given).backward(grad_output)
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - before
    return peak


def _judged(name: str, mine: int, theirs: int, limit: int) -> Comparison:
    return Comparison.statement(name, mine <= limit, f"{_size(mine)}, eager {_size(theirs)}")


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
