"""The torch ops of a generated package: calls of them, and what they return, for tracers."""

import torch
from torch import Tensor

from .differentiated import differentiate_in_cpp, differentiate_in_python
from .dimensions import as_rows
from .op_schemas import arguments_of, check_devices, describe, is_written, named
from .trailing import Flattened, with_trailing


class Operator:
    """A forward op, differentiated by a backward op.

    results, gradients: what the ops return, each as (role, *sizes). A role stands for a dtype; a
    size is a number, one of rows, channels, in_features, groups, or a pair of both, for so many
    times that. The gradients are those of the
    first arguments, in order; the backward op returns the ones that its last argument wants. What
    has rows among them is an input of the module, or a parameter that differs from row to row.
    masks: the sizes of the arguments of bool, which come next. order: which of the results the
    module returns, as a tuple; None: the first alone. They are the first ones, and the backward
    op's first arguments are the gradients that come to them. linear: whether the first two
    arguments are the operands of a matrix product. drops_channels: whether the first result, [rows,
    1] of the op, is [rows] for the caller. precisions: whether the product is made in several; the
    last three arguments are then the precision and the pieces of both operands, which the op
    `split` makes. tiled: whether the ops take images, too: [batch, positions, channels] as the
    first argument, [batch, channels, positions] elsewhere where tensors have rows. The first
    gradient is that of the first argument. own_source: whether the first argument is one of the
    module's, and [batch, channels, positions] then. same: gradients by their place, each with the
    place of what it equals: a gradient before it, or as a negative number one that comes to a
    result, of which -1 is the last. Where both have one dtype, the op is not asked for it, and
    autograd gets one tensor for both.
    """

    split = None

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
        tiled=False,
        own_source=False,
        masks=(),
        same=None,
    ):
        self.tiled, self.own_source = tiled, own_source
        self.package, self.results, self.single = package, results, len(results) == 1
        # The place of what has no dimension for the channels among the results that are returned.
        self.dropped = (order.index(0) if order else 0) if drops_channels else None
        self.gradients, self.linear, self.order = gradients, linear, order
        self.given = 1 if order is None else len(order)
        self.same = [(same or {}).get(index) for index in range(len(gradients))]
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
        self.served = _served(self.forward) if linear else {}
        describe(self.forward, self._forward_fake, self._forward_flops)
        describe(self.backward, self._backward_fake, self._backward_flops)
        if precisions:
            self.split = package.find_op("split")
            describe(self.split, _split_fake, lambda *_, **__: 0)
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
            each.squeeze(at) if index == self.dropped else each for index, each in enumerate(result)
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
        return tuple(results[index] for index in self.order)

    def _call_on_rows(self, arguments):
        given = list(arguments)
        for index in self.with_rows:
            given[index] = as_rows(given[index])
        result = self.run(given)
        shape = arguments[0].shape[:-1]
        if self.order is not None:
            return tuple(each.view(*shape, each.shape[-1]) for each in result)
        return result.view(*shape, result.shape[-1])

    # What the ops return, without data

    def described(self, arguments, x):
        """What a call with these arguments gives, as tensors without values. x: its first input."""
        if isinstance(arguments[0], Flattened):
            flat, trailing = arguments[0].flat(), arguments[0].trailing
            return with_trailing(self.described((flat, *arguments[1:]), flat), trailing)
        dtypes = self.package.dtypes[named(self.forward, arguments)["_dtype_mode"]]
        at, shape = -1, list(x.shape)
        if not isinstance(arguments[0], Tensor):  # of images
            at, shape = 1, list(arguments[0].shape)
        channels = (arguments[1].shape[0] if self.linear else shape[at]) // self.parts
        made = []
        for role, *sizes in self.results:
            shape[at] = 1 if sizes[1:] == [1] else channels
            made.append(x.new_empty(shape, dtype=dtypes[role]))
        result = self._returned(made)
        return self._without_channels(result, at)

    def _forward_fake(self, *arguments):
        check_devices(self.forward, arguments)
        given = named(self.forward, arguments)
        first = arguments[0]
        sizes = {
            "rows": first.shape[0],
            "channels": (arguments[1].shape[0] if self.linear else first.shape[-1]) // self.parts,
        }
        sizes["groups"] = given.get("_groups")
        outer = None
        if first.dim() == 3:
            batch, one, other = first.shape
            outer = tuple(first.shape) if self.own_source else (batch, other // self.parts, one)
            sizes["channels"] = outer[1]
        made = tuple(self._new(first, given, sizes, each, outer) for each in self.results)
        return made if len(made) > 1 else made[0]

    def _backward_fake(self, *arguments):
        check_devices(self.backward, arguments)
        given = named(self.backward, arguments)
        grad = arguments[0]
        sizes = {"rows": grad.shape[0], "channels": given.get("_channels", grad.shape[1])}
        outer = tuple(grad.shape) if grad.dim() == 3 else None
        inner = outer
        if outer and not self.own_source:
            inner = (outer[0], outer[2], outer[1] * self.parts)
        if self.linear:
            # An operand of the product is there where the other one's gradient is wanted.
            operand = self._operand(arguments)
            sizes["in_features"] = None if operand is None else operand.shape[1]
        images = [inner] + [outer] * (len(self.gradients) - 1)
        wanted = zip(self.gradients, images, arguments[-1], strict=True)
        return [self._new(grad, given, sizes, each, image) for each, image, want in wanted if want]

    def _new(self, like, given, sizes, result, image):
        """image: the shape of what has rows and channels, where these are not its dimensions."""
        role, *shape = result
        dtype = self.package.dtypes[given["_dtype_mode"]][role]
        if image is not None and shape[:1] == ["rows"] and shape[1:] != [1]:
            return like.new_empty(image, dtype=dtype)
        known = {**given, **sizes}
        return like.new_empty([_size(known, size) for size in shape], dtype=dtype)

    # Floating-point operations, which FlopCounterMode counts for matrix products alone

    def _forward_flops(self, *arguments, **_):
        return _product_flops(arguments[0], arguments[1].shape[0]) if self.linear else 0

    def _backward_flops(self, *arguments, **_):
        if not self.linear:
            return 0
        operand = self._operand(arguments)
        count = sum(bool(want) for want in arguments[-1][:2])
        return count * self.parts * _product_flops(arguments[0], operand.shape[1]) if count else 0

    def _operand(self, arguments):
        """An operand of the product among the backward op's arguments, if one is wanted."""
        both = arguments[self.given : self.given + 2]
        return next((each for each in both if each is not None), None)

def _size(sizes, size):
    """A size of a result: a number, one of `sizes`, or so many times one."""
    count, name = size if isinstance(size, tuple) else (1, size)
    return count * sizes.get(name, name)


def _served(forward):
    """The one gradient that an operand of the product and its pieces serve: the other operand's.

    Its index, by the index of what serves it.
    """
    names = [each.name for each in arguments_of(forward)]
    found = {0: 1, 1: 0}
    if "_precision" in names:
        found |= {names.index("_operand_pieces"): 1, names.index("_weight_pieces"): 0}
    return found


def _split_fake(values):
    """As PiecesLayout::halves() of contraction/contraction.h, by rows."""
    rows, columns = values.shape
    stride = (columns + 7) // 8 * 8
    return values.new_empty([2 * (rows * stride + 2 * rows + 2)], dtype=torch.float16)


def _product_flops(matrix, width):
    return 2 * matrix.shape[0] * matrix.shape[1] * width
