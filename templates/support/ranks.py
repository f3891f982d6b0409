"""Batch norm with the statistics of several ranks: the ops around one exchange in each direction.

A rank takes the mean and the variance of its own rows. All ranks gather them with the numbers of
rows, and merge them alike. Backward they gather the two sums that the gradient needs. The gradients
of weight and bias are those of this rank's rows, as torch.nn.SyncBatchNorm leaves them. Nothing
waits for the GPU: counts stay on it. A rank without rows takes part in both exchanges.
"""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from .dimensions import as_rows
from .stand_in import Eager

RANKS_COMPILED = Eager("torch.compile traces no exchange between ranks")
RANKS_PRECISION = Eager("float32 products are IEEE's where ranks exchange statistics")


class Ranks(NamedTuple):
    """What a call needs of the norm besides the ops' arguments.

    group: of the ranks. running_mean, running_var, batches: what the call moves, or None. momentum:
    None for a cumulative average.
    """

    group: Any
    running_mean: Tensor | None
    running_var: Tensor | None
    batches: Tensor | None
    momentum: float | None


def group_of(norm):
    """The ranks whose statistics a norm takes; None where those of this process alone count.

    As nn.SyncBatchNorm has it: in training, in a group of more than one.
    """
    if not (norm.training and dist.is_available() and dist.is_initialized()):
        return None
    group = norm.process_group if norm.process_group else dist.group.WORLD
    return group if dist.get_world_size(group) > 1 else None


class RankOperator:
    """The ops over ranks, as one operator that autograd sees.

    statistics: the arguments of the forward op that come from all ranks, mean and variance. sums:
    those of the backward op, the means of g and of g xhat. early: the arguments whose gradients the
    op `ranks_sums` makes; the op `ranks_backward` makes those of `late`. with_rows: the numbers of
    the call's arguments that have rows. linear: whether the first two are the operands of a matrix
    product, which is made in front of the ops. bias: the argument that PyTorch adds to a product of
    16 bits before it is rounded; its gradient is made with the others.
    """

    split = None
    sync_batch_norm = True
    has_contiguous_layout = own_source = False
    dropped = of_samples = None
    parts = 1

    def __init__(self, package, statistics, sums, early, late, with_rows, linear, bias=None):
        self.package, self.statistics, self.sums = package, statistics, sums
        self.early, self.late, self.with_rows = early, late, with_rows
        self.linear, self.bias = linear, bias
        if not package.built:
            return
        names = (f"ranks_{name}" for name in _Ops._fields)
        self.ops = _Ops(*(package.find_op(name) for name in names))
        self.given = _Ops(*map(_names, self.ops))
        self.arguments = [name for name in self.given.forward if name not in statistics]
        self.results = [each.name for each in self.ops.forward._schema.returns][1:]
        # Each begins with the result's gradient and ends with what is wanted.
        backward = (*self.given.sums[1:-1], *self.given.backward[1:-1])
        self.kept = [name for name in dict.fromkeys(backward) if name not in sums]
        self.function = self._differentiate()

    def __call__(self, *arguments):
        """The result of the forward op. arguments: of the call, then a `Ranks`."""
        *given, ranks = arguments
        shape = given[0].shape
        if len(shape) != 2:
            for index in self.with_rows:
                given[index] = as_rows(given[index])
        if self.linear:
            x, weight, *others = given
            given = [F.linear(x, weight, self._bias_of_product(x, others)), *others]
        result = self.function.apply(ranks, *given)
        return result if len(shape) == 2 else result.view(*shape[:-1], result.shape[-1])

    def described(self, arguments, x):
        """What a call with these arguments gives, without values. x: its first input."""
        # The product stands for its operands, of which one is left.
        given = arguments[1:] if self.linear else arguments
        named = dict(zip(self.arguments, given, strict=False))
        at, shape = -1, list(x.shape)
        if not isinstance(arguments[0], Tensor):  # of images
            at, shape = 1, list(arguments[0].shape)
        if self.linear:
            shape[at] = arguments[1].shape[0]
        return x.new_empty(shape, dtype=self._dtype(named, "output"))

    def _bias_of_product(self, x, others):
        if self.bias is None or x.dtype.itemsize > 2:
            return None
        return others[self.arguments.index(self.bias) - 1].detach().to(x.dtype)

    def _dtype(self, named, role):
        return self.package.dtypes[named["_dtype_mode"]][role]

    # Forward. named: the values of arguments and results by their names.

    def _call(self, op, names, named):
        return op(*(named[name] for name in names))

    def _forward(self, ranks, named):
        """The result, and how many rows all ranks have."""
        source = named[self.arguments[0]]
        mean, variance, count = self._statistics_of_ranks(source, ranks, named)
        named |= zip(self.statistics, (mean, variance), strict=True)
        if source.shape[0]:
            found = self._call(self.ops.forward, self.given.forward, named)
            result, *saved = found if self.results else (found,)
        else:
            result = torch.empty_like(source, dtype=self._dtype(named, "output"))
            saved = [None] * len(self.results)
        named |= zip(self.results, saved, strict=True)
        return result, count

    def _statistics_of_ranks(self, source, ranks, named):
        """The mean and the variance of all rows, and their number. Moves the running statistics."""
        if source.shape[0]:
            own = self._call(self.ops.statistics, self.given.statistics, named)
        else:
            dtype = self._dtype(named, "accumulator")
            own = source.new_zeros(2 * source.shape[1] + 1, dtype=dtype)
        momentum = ranks.momentum
        if momentum is None:
            momentum = 0.0
            if ranks.batches is not None:
                ranks.batches.add_(1)
                momentum = -1.0  # to the kernel, all of whose threads read the count: by that
        gathered = _gathered(own, ranks.group)
        moved = (ranks.running_mean, ranks.running_var, ranks.batches)
        found = self.ops.merge(gathered, *moved, named["_dtype_mode"], momentum)
        torch.autograd.graph.increment_version([each for each in moved if each is not None])
        return found

    # Backward

    def _backward(self, grad, named, needs, group):
        """The gradients that are wanted, by the argument. needs: one flag for each that may be."""
        wanted = {name for name, need in zip(self.arguments, needs, strict=False) if need}
        early = [name for name in self.early if name in wanted]
        late = [name for name in self.arguments if name in self.late and name in wanted]
        given = {"grad": grad, "needs": [name in wanted for name in self.early]}
        if grad.shape[0]:
            named |= given
            names = ("grad", *self.given.sums[1:-1], "needs")
            own, *found = self._call(self.ops.sums, names, named)
        else:
            own = named[self.statistics[0]].new_zeros(2 * grad.shape[1])
            found = [torch.zeros_like(named[name]) for name in early]
        gradients = dict(zip(early, found, strict=True))
        if late:
            means = _gathered(own, group).sum(0) / named["count"]
            named |= zip(self.sums, means.chunk(2), strict=True)
            if grad.shape[0]:
                names = ("grad", *self.given.backward[1:-1], "needs")
                found = self._call(self.ops.backward, names, named | {"needs": needs})
            else:
                found = [torch.zeros_like(named[name]) for name in late]
            gradients |= zip(late, found, strict=True)
        return gradients

    def _differentiate(self):
        """An autograd.Function of a `Ranks` and the arguments of the forward op."""
        operator, names = self, self.arguments
        refusal = self.package.no_second_derivative()
        count_of_sources = names.index("_dtype_mode")

        class OverRanks(torch.autograd.Function):
            @staticmethod
            def forward(ctx, ranks, *arguments):
                named = dict(zip(names, arguments, strict=True))
                result, count = operator._forward(ranks, named)
                kept = operator.kept
                if not result.shape[0]:  # gradients of zeros take their shapes from these
                    kept = (*kept, *names[:count_of_sources])
                tensors = {name: named[name] for name in kept if isinstance(named[name], Tensor)}
                ctx.save_for_backward(count, *tensors.values())
                ctx.names = ("count", *tensors)
                ctx.others = {name: named[name] for name in kept if name not in tensors}
                ctx.group = ranks.group
                return result

            @staticmethod
            def backward(ctx, grad):
                if torch.is_grad_enabled():
                    raise RuntimeError(refusal)
                named = dict(zip(ctx.names, ctx.saved_tensors, strict=True)) | ctx.others
                needs = list(ctx.needs_input_grad[1 : count_of_sources + 1])
                found = operator._backward(grad, named, needs, ctx.group)
                return None, *(found.get(name) for name in names)

        return OverRanks


class _Ops(NamedTuple):
    """Something of each op."""

    statistics: Any
    merge: Any
    forward: Any
    sums: Any
    backward: Any


def _names(op):
    return [each.name for each in op._schema.arguments]


def _gathered(own, group):
    """What each rank has, [ranks, ...]."""
    found = own.new_empty(dist.get_world_size(group), own.numel())
    if own.is_cuda and dist.get_backend(group) != "gloo":
        dist.all_gather_into_tensor(found, own, group)
    else:
        dist.all_gather(list(found.unbind(0)), own, group)
    return found
