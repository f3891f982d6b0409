"""The torch ops of a generated package, and calls of them."""

import torch
from torch import Tensor

from .differentiated import differentiate_in_cpp, differentiate_in_python
from .dimensions import as_rows, pooled
from .op_schemas import arguments_of, is_written
from .traced import TracedOperator


class Operator(TracedOperator):
    """A forward op, differentiated by a backward op.

    results, gradients: what the ops return, each as (role, *sizes). A role stands for a dtype; a
    size is a number, one of rows, channels, in_features, groups, or a pair of both, for so many
    times that. The gradients are those of the first arguments, in order; the backward op returns
    the ones that its last argument wants. What has rows among them is an input of the module, or a
    parameter that differs from row to row. masks: the sizes of the arguments of bool, which come
    next. order: which of the results the module returns, as a tuple; None: the first alone. They
    are the first ones, and the backward op's first arguments are the gradients that come to them.
    linear: whether the first two arguments are the operands of a matrix product. drops_channels:
    whether the first result, [rows, 1] of the op, is [rows] for the caller. precisions: whether the
    product is made in several; the last three arguments are then the precision and the pieces of
    both operands, which the op `split` makes. has_contiguous_layout: whether the ops take images,
    too: [batch, positions, channels] as the first argument, [batch, channels, positions] elsewhere
    where tensors have rows. The first gradient is that of the first argument. own_source: whether
    the first argument is one of the module's, and [batch, channels, positions] then.
    kept_positions: how many dimensions of one position the first result has, where it has one value
    for each channel of an image; None where it has more.
    chunks: whether there is an op for the loss of some rows at a time, see losses_in_chunks.py.
    gradient_aliases: gradients by their place, each with the place of what it equals: a gradient
    before it, or as a negative number one that comes to a result, of which -1 is the last. Where
    both have one dtype, the op is not asked for it, and autograd gets one tensor for both.
    """

    split = chunk = scale = None
    sync_batch_norm = False

    def __init__(
        self,
        package,
        variant,
        results,
        gradients,
        linear,
        drops_channels=False,
        precisions=False,
        order=None,
        has_contiguous_layout=False,
        own_source=False,
        masks=(),
        gradient_aliases=None,
        kept_positions=None,
        chunks=False,
    ):
        self.has_contiguous_layout, self.own_source = has_contiguous_layout, own_source
        self.package, self.results, self.single = package, results, len(results) == 1
        self.variant = variant
        # The place of what has no dimension for the channels among the results that are returned.
        self.dropped = (order.index(0) if order else 0) if drops_channels else None
        self.gradients, self.linear, self.order = gradients, linear, order
        # The place of what has no positions among the results that are returned.
        self.kept_positions = kept_positions
        self.of_samples = None if kept_positions is None else (order.index(0) if order else 0)
        self.given = 1 if order is None else len(order)
        self.gradient_aliases = [(gradient_aliases or {}).get(i) for i in range(len(gradients))]
        # The source of the kernels may have the channels several times.
        source = gradients[1][1] if linear else gradients[0][2]
        self.parts = source[0] if isinstance(source, tuple) else 1
        arguments = [*(sizes for _, *sizes in gradients), *masks]
        self.with_rows = [i for i, sizes in enumerate(arguments) if "rows" in sizes]
        if not package.built:
            return
        self.forward = package.find_op(f"{variant}forward")
        self.backward = package.find_op(f"{variant}backward")
        self.mutated = [i for i, each in enumerate(arguments_of(self.forward)) if is_written(each)]
        names = [each.name for each in arguments_of(self.forward)]
        self.positions_at = names.index("_positions") if "_positions" in names else None
        self.windows_at = names.index("_windows") if "_windows" in names else None
        self.served = _served(self.forward) if linear else {}
        if precisions:
            self.split = package.find_op("split")
        # How many arguments are tensors, in front of the numbers.
        self.tensors = names.index("_dtype_mode")
        if chunks:
            self.chunk = package.find_op(f"{variant}chunk")
            self.scale = package.find_op("scale")
        self.describe_ops()
        self.in_cpp = differentiate_in_cpp(self)
        self.function = differentiate_in_python(self)

    def __call__(self, *arguments):
        """The result of the forward op, a tuple where the module returns several; autograd sees
        the call.

        Inputs [..., channels] give the result of their views [rows, channels], in their dimensions.
        """
        result = (self.run if arguments[0].dim() == 2 else self._call_on_rows)(arguments)
        return self._without_channels(result, -1)

    def _without_channels(self, result, at):
        """The same without the dimension of the channels, which is `at`, of the result of rows."""
        if self.dropped is None:
            return result
        if not isinstance(result, tuple):
            return result.squeeze(at)
        return tuple(
            each.squeeze(at) if i == self.dropped else each for i, each in enumerate(result)
        )

    def run(self, arguments):
        """The same of arguments as the ops take them, and as the op has it."""
        if self.in_cpp:
            return self._returned(self.forward(*arguments))
        if torch.is_grad_enabled():
            result = self._returned(self.function.apply(*arguments))
        else:
            result = self._returned(self.forward(*arguments))
        if self.mutated and not torch.compiler.is_compiling():
            written = [arguments[i] for i in self.mutated if arguments[i] is not None]
            torch.autograd.graph.increment_version(written)
        return result

    def _returned(self, results):
        """Those results of the forward op that the module returns, as it returns them."""
        results = (results,) if isinstance(results, Tensor) else results
        if self.order is None:
            return results[0]
        return tuple(results[i] for i in self.order)

    def _call_on_rows(self, arguments):
        given = list(arguments)
        for i in self.with_rows:
            given[i] = as_rows(given[i])
        result = self.run(given)
        shape = arguments[0].shape[:-1]
        if self.windows_at is not None:
            shape = pooled(shape, arguments[self.windows_at])
        if self.order is None and self.of_samples is None:
            return result.view(*shape, result.shape[-1])
        return self.each_full(result, lambda each: each.view(*shape, each.shape[-1]))

    def each_full(self, result, change):
        """The result, or several, changed where it has rows; else in the dimensions that callers
        see: [batch, channels], and one position if these are kept."""
        if self.order is None:
            return change(result) if self.of_samples is None else self._of_images(result)
        return tuple(
            self._of_images(each) if i == self.of_samples else change(each)
            for i, each in enumerate(result)
        )

    def _of_images(self, result):
        return result.view(*result.shape[:2], *(1,) * self.kept_positions)


def _served(forward):
    """The one gradient that an operand of the product and its pieces serve: the other operand's.

    Its index, by the index of what serves it.
    """
    names = [each.name for each in arguments_of(forward)]
    found = {0: 1, 1: 0}
    if "_precision" in names:
        found |= {names.index("_operand_pieces"): 1, names.index("_weight_pieces"): 0}
    return found
