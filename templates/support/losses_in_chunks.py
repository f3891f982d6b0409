"""Losses of a linear layer whose result is made some rows at a time, and never whole.

The gradients are made with the losses, chunk by chunk, while the rows of the layer's result are in
memory: those of the mean or the sum are the same for every row, but for a factor that the backward
pass brings. Gradients of losses that stay apart differ from row to row: there the backward pass
makes the rows again.
"""

import torch
from torch.autograd.function import once_differentiable

from .chunk_rows import chunk_rows
from .dimensions import as_rows
from .losses import Loss


class ChunkedLoss(Loss):
    """As Loss, also of losses that stay apart. chunk: how many rows there are at a time; None: as
    chunk_rows() has it."""

    __slots__ = ()

    def rows(self, module, arguments):
        """How many rows of the layer's result a call has in memory. arguments: of the forward op."""
        if module.fusegen_chunk is not None or self.chunk is not None:
            return module.fusegen_chunk or self.chunk
        x, weight = arguments[:2]
        return chunk_rows(_rows(x), weight.shape[0], x.element_size())

    def is_divided(self, module, arguments):
        """Whether a call has more than one chunk."""
        # The flag, since Dynamo takes is_exporting() for true in any trace before torch 2.12. A
        # number of rows that stays free must not be compared with anything.
        if torch.compiler._is_exporting_flag:
            return True
        return _rows(arguments[0]) > self.rows(module, arguments)

    def in_chunks(self, module, operator, arguments, target):
        """The loss, of the losses' dtype: without dimensions, or of the targets' shape where losses
        stay apart."""
        given = list(arguments)
        for i in operator.with_rows:
            given[i] = as_rows(given[i])
        how, flat = (operator, self, self.rows(module, arguments)), target.flatten()
        flat = flat.view_as(flat)  # torch.compile takes no tensor twice in one call
        if not torch.is_grad_enabled():
            none = [False] * len(operator.gradients)
            losses = _call(how, given, None, none)[0]
            return _reduced(how, losses, flat)[0].view(self._shape(target))
        kind = _Apart if self.reduction == "none" else _Reduced
        return kind.apply(how, flat, *given).view(self._shape(target))

    def _shape(self, target):
        return target.shape if self.reduction == "none" else ()


def _rows(x):
    return x.numel() // x.shape[-1]


def _call(how, arguments, grad, needs):
    """The losses of rows, and the gradients that are wanted. grad: of the losses, [rows, 1]; None:
    1 for each."""
    operator, _, rows = how
    at = operator.tensors
    if grad is None:
        dtype = operator.package.dtypes[arguments[at]]["output"]
        grad = arguments[0].new_ones((arguments[0].shape[0], 1), dtype=dtype)
    return operator.chunk(*arguments[:at], grad, *arguments[at:], rows, needs)


def _reduced(how, losses, target):
    """What is made of the losses of rows, and what it was divided by."""
    operator, loss, _ = how
    if loss.reduction == "none":
        return losses, None
    return loss.reduce(operator.package, losses.flatten(), target)


class _Reduced(torch.autograd.Function):
    """The mean or the sum, with gradients that are made in the forward pass."""

    @staticmethod
    def forward(ctx, how, target, *arguments):
        tensors = _keep(ctx, how, arguments)
        losses, *gradients = _call(how, arguments, None, ctx.needs)
        loss, count = _reduced(how, losses, target)
        ctx.is_compiled, ctx.is_mean = torch.compiler.is_compiling(), count is not None
        made = [count, *gradients] if ctx.is_mean else gradients
        if ctx.is_compiled:
            ctx.save_for_backward(*made)
        else:
            ctx.save_for_backward(*tensors)
            # Not saved as such: what others hold, too, is copied into a .grad.
            ctx.count, ctx.gradients = count, gradients
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        if ctx.is_compiled:
            gradients = list(ctx.saved_tensors)
            count = gradients.pop(0) if ctx.is_mean else None
        else:
            # The first backward pass hands them out, and others may write to them.
            gradients, ctx.gradients = ctx.gradients, None
            if gradients is None:
                gradients = _call(ctx.how, _kept(ctx), None, ctx.needs)[1:]
            count = ctx.count
        factor = grad.to(torch.promote_types(grad.dtype, torch.float32)).view(1)
        factor = factor if count is None else factor / count
        if ctx.is_compiled:
            gradients = [(each * factor).to(each.dtype) for each in gradients]
        else:
            _scale(gradients, factor)
        return _wanted(ctx, gradients)


class _Apart(torch.autograd.Function):
    """The losses of rows, whose backward pass makes the layer's result again."""

    @staticmethod
    def forward(ctx, how, _, *arguments):
        ctx.save_for_backward(*_keep(ctx, how, arguments))
        return _call(how, arguments, None, [False] * len(ctx.needs))[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return _wanted(ctx, _call(ctx.how, _kept(ctx), grad, ctx.needs)[1:])


def _keep(ctx, how, arguments):
    """Keeps what a call is made of, for a backward pass that makes it again, but for the tensors.
    Returns these."""
    ctx.how, ctx.needs = how, list(ctx.needs_input_grad[2 : 2 + len(how[0].gradients)])
    ctx.is_tensor = [isinstance(each, torch.Tensor) for each in arguments]
    ctx.others = [each for each in arguments if not isinstance(each, torch.Tensor)]
    return [each for each in arguments if isinstance(each, torch.Tensor)]


def _kept(ctx):
    tensors, others = iter(ctx.saved_tensors), iter(ctx.others)
    return [next(tensors) if each else next(others) for each in ctx.is_tensor]


def _wanted(ctx, gradients):
    """A gradient for each argument of the function, or None."""
    made = iter(gradients)
    found = [next(made) if need else None for need in ctx.needs]
    return (None, None, *found, *(None for _ in ctx.is_tensor[len(found) :]))


def _scale(gradients, factor):
    """Multiplies gradients by a number on the device, in float32, in their memory.

    As torch.amp.GradScaler does: torch.mul would round the factor to 16 bits.
    """
    for each in gradients:
        if factor.dtype == torch.float64:
            each.mul_(factor)
        else:
            found = torch.zeros_like(factor)  # which nobody reads
            torch._amp_foreach_non_finite_check_and_unscale_([each], found, factor)
