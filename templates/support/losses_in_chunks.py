"""Losses of a linear layer whose result is made some rows at a time, and never whole.

The gradients are made with the losses, chunk by chunk, while the rows of the layer's result are in
memory: those of the mean or the sum are the same for every row, but for a factor that the backward
pass brings. Gradients of losses that stay apart differ from row to row: there the backward pass
makes the rows again, as it does in float16, where the factor decides which gradients are zero or
infinite.
"""

import torch
from torch.autograd.function import once_differentiable

from .chunk_rows import chunk_rows
from .dimensions import as_rows
from .losses import Loss
from .stand_in import is_traced


class ChunkedLoss(Loss):
    """As Loss, also of losses that stay apart. chunk: how many rows there are at a time; None: as
    chunk_rows() has it."""

    __slots__ = ()

    def rows(self, module, arguments):
        """How many rows of the layer's result a call has in memory. arguments: of the forward op."""
        own = module.fusegen_chunk
        if own is not None and (type(own) is not int or own < 1):
            raise ValueError(f"fusegen_chunk must be a number of rows, at least 1, not {own!r}")
        if own is not None or self.chunk is not None:
            return own or self.chunk
        x, weight = arguments[:2]
        return chunk_rows(_rows(x), weight.shape[0], x.element_size())

    def is_divided(self, module, arguments):
        """Whether a call has more than one chunk."""
        # The flag, since Dynamo takes is_exporting() for true in any trace before torch 2.12. An
        # exported program has the gradients of ops, and none of functions of Python's.
        if torch.compiler._is_exporting_flag:
            return not torch.is_grad_enabled()
        return _rows(arguments[0]) > self.rows(module, arguments)

    def in_chunks(self, module, operator, arguments, inputs):
        """The loss, of the losses' dtype: without dimensions, or of the targets' shape where losses
        stay apart. inputs: of the call."""
        given, target, weights = list(arguments), inputs[self.target], self.weights(module, inputs)
        for i in operator.with_rows:
            given[i] = as_rows(given[i])
        how, flat = (operator, self, self.rows(module, arguments)), target.flatten()
        flat = flat.view_as(flat)  # torch.compile takes no tensor twice in one call
        if not torch.is_grad_enabled():
            none = [False] * len(operator.gradients)
            losses = _call(how, given, None, none)[0]
            return _reduced(how, losses, flat, weights).view(self._shape(target))
        if self.reduction != "none" and given[0].dtype != torch.float16:
            return _Reduced.apply(how, flat, weights, *given)
        losses = _Apart.apply(how, flat, weights, *given)
        return _reduced(how, losses, flat, weights).view(self._shape(target))

    def _shape(self, target):
        return target.shape if self.reduction == "none" else ()


def _rows(x):
    return x.numel() // x.shape[-1]


def _call(how, arguments, grad, needs):
    """The losses of rows, and the gradients that are wanted. grad: of the losses, one for each row
    or one for all; None for 1."""
    operator, _, rows = how
    at, x = operator.tensors, arguments[0]
    of_rows = x.new_empty((x.shape[0], 1), dtype=_accumulator(operator, arguments))
    of_rows = of_rows.fill_(1) if grad is None else of_rows.copy_(grad)
    return operator.chunk(*arguments[:at], of_rows, *arguments[at:], rows, needs)


def _reduced(how, losses, target, weights):
    """What is made of the losses of rows."""
    operator, loss, _ = how
    if loss.reduction == "none":
        return losses
    return loss.reduce(operator.package, losses.flatten(), target, weights)


class _Reduced(torch.autograd.Function):
    """The mean or the sum, with gradients that are made in the forward pass."""

    @staticmethod
    def forward(ctx, how, target, weights, *arguments):
        tensors = _keep(ctx, how, arguments)
        share = _share(how, target, weights, _accumulator(how[0], arguments))
        losses, *gradients = _call(how, arguments, share, ctx.needs)
        loss = _reduced(how, losses, target, weights)
        ctx.is_traced = _is_traced(loss)
        if ctx.is_traced:
            ctx.save_for_backward(*gradients)
            # In torch 2.11 Dynamo loses the gradient of a result that a cast to its own dtype made.
            return loss.clone()
        ctx.save_for_backward(*tensors)
        # Not saved as such: what others hold, too, is copied into a .grad.
        ctx.share, ctx.gradients = share, gradients
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        if ctx.is_traced:
            gradients = ctx.saved_tensors
        else:
            # The first backward pass hands them out, and others may write to them.
            gradients, ctx.gradients = ctx.gradients, None
            if gradients is None:
                gradients = _call(ctx.how, _kept(ctx), ctx.share, ctx.needs)[1:]
        factor = grad.to(torch.promote_types(grad.dtype, torch.float32)).view(1)
        if ctx.is_traced:
            gradients = [_times(*each, factor) for each in _by_rows(ctx, gradients)]
        else:
            for each, by_rows in _by_rows(ctx, gradients):
                _scale(ctx.how[0], each, by_rows, factor)
        return _wanted(ctx, gradients)


class _Apart(torch.autograd.Function):
    """The losses of rows, whose backward pass makes the layer's result again."""

    @staticmethod
    def forward(ctx, how, target, weights, *arguments):
        ctx.save_for_backward(*_keep(ctx, how, arguments))
        return _call(how, arguments, None, [False] * len(ctx.needs))[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return _wanted(ctx, _call(ctx.how, _kept(ctx), grad, ctx.needs)[1:])


def _share(how, target, weights, dtype):
    """What the loss has of the loss of each row that counts: a tensor; None for 1."""
    loss = how[1]
    return 1 / loss.count(target, weights).to(dtype) if loss.reduction == "mean" else None


def _accumulator(operator, arguments):
    return operator.package.dtypes[arguments[operator.tensors]]["accumulator"]


def _keep(ctx, how, arguments):
    """Keeps what a call is made of, for a backward pass that makes it again, but for the tensors.
    Returns these."""
    ctx.how, ctx.needs = how, list(ctx.needs_input_grad[3 : 3 + len(how[0].gradients)])
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
    return (None, None, None, *found, *(None for _ in ctx.is_tensor[len(found) :]))


def _by_rows(ctx, gradients):
    """Each gradient, and whether it has rows, of which those that are ignored stay zero even where
    the factor is no number."""
    wanted = [index for index, need in enumerate(ctx.needs) if need]
    return [(each, i in ctx.how[0].with_rows) for each, i in zip(gradients, wanted, strict=True)]


def _scale(operator, gradient, by_rows, factor):
    """Multiplies a gradient by a number on the device, in its memory; by 1 there is nothing to do."""
    if gradient.dtype == torch.float64:  # of verification builds
        gradient.copy_(_times(gradient, by_rows, factor))
    else:
        operator.scale(gradient, factor, by_rows)


def _times(gradient, by_rows, factor):
    product = (gradient * factor).to(gradient.dtype)
    return torch.where(gradient == 0, gradient, product) if by_rows else product


def _is_traced(x):
    """Whether a trace is made, in which gradients are values as all others."""
    return torch.compiler.is_compiling() or is_traced(x)
