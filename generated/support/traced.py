"""What the torch ops of a package return, for tracers and profilers."""

import torch
from torch import Tensor

from .dimensions import pooled, pooled_counts
from .op_schemas import check_devices, describe, named
from .trailing import Flattened, with_trailing


class TracedOperator:
    """An Operator's answers: calls without data, and floating-point operations."""

    def describe_ops(self):
        """Registers the answers for the ops."""
        describe(self.forward, self._forward_fake, self._forward_flops)
        describe(self.backward, self._backward_fake, self._backward_flops)
        if self.split is not None:
            describe(self.split, _split_fake, lambda *_, **__: 0)
        if self.chunk is not None:
            describe(self.chunk, self._chunk_fake, self._chunk_flops)

    def described(self, arguments, x):
        """What a call with these arguments gives, as tensors without values. x: its first input."""
        if isinstance(arguments[0], Flattened):
            flattened, trailing = arguments[0].flatten(), arguments[0].trailing
            return with_trailing(self.described((flattened, *arguments[1:]), flattened), trailing)
        dtypes = self.package.dtypes[named(self.forward, arguments)["_dtype_mode"]]
        at, shape = -1, list(x.shape)
        if not isinstance(arguments[0], Tensor):  # of images
            at, shape = 1, list(arguments[0].shape)
        channels = (arguments[1].shape[0] if self.linear else shape[at]) // self.parts
        made = []
        for role, *sizes in self.results:
            shape[at] = 1 if sizes[1:] == [1] else channels
            own = [shape[0], channels] if sizes[:1] == ["samples"] else shape
            if sizes[:1] == ["windows"]:
                batch, *made_of = pooled([shape[0], *shape[2:]], arguments[self.windows_at])
                own = [batch, channels, *made_of]
            made.append(x.new_empty(own, dtype=dtypes[role]))
        result = self._returned(made)
        if self.of_samples is not None:
            return self.each_full(result, lambda each: each)
        return self._without_channels(result, at)

    def _forward_fake(self, *arguments):
        check_devices(self.forward, arguments)
        given = named(self.forward, arguments)
        first = arguments[0]
        sizes = {
            "rows": first.shape[0],
            "channels": (arguments[1].shape[0] if self.linear else first.shape[-1]) // self.parts,
        }
        sizes["groups"], sizes["samples"] = given.get("_groups"), given.get("_samples")
        if self.windows_at is not None:
            positions, windows = pooled_counts(given["_windows"])
            sizes["windows"] = sizes["rows"] // positions * windows
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
        sizes = {
            "rows": given.get("_rows", grad.shape[0]),
            "channels": given.get("_channels", grad.shape[1]),
        }
        if self.windows_at is not None:
            positions, windows = pooled_counts(given["_windows"])
            sizes["rows"] = grad.shape[0] // windows * positions
        outer = tuple(grad.shape) if grad.dim() == 3 else None
        if given.get("_positions"):
            outer = (*grad.shape, given["_positions"])
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

    def _chunk_fake(self, *arguments):
        """The losses, then a gradient like each of the first arguments that is wanted."""
        check_devices(self.chunk, arguments)
        given = named(self.chunk, arguments)
        dtype = self.package.dtypes[given["_dtype_mode"]]["output"]
        wanted = [each for each, want in zip(arguments, given["_needs"], strict=False) if want]
        losses = arguments[0].new_empty((arguments[0].shape[0], 1), dtype=dtype)
        return [losses, *(each.new_empty(each.shape) for each in wanted)]

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

    def _chunk_flops(self, *arguments, **_):
        count = 1 + sum(bool(want) for want in arguments[-1][:2])
        return count * _product_flops(arguments[0], arguments[1].shape[0])

    def _operand(self, arguments):
        """An operand of the product among the backward op's arguments, if one is wanted."""
        both = arguments[self.given : self.given + 2]
        return next((each for each in both if each is not None), None)


def _size(sizes, size):
    """A size of a result: a number, one of `sizes`, or so many times one."""
    count, name = size if isinstance(size, tuple) else (1, size)
    return count * sizes.get(name, name)


def _split_fake(values):
    """As PiecesLayout::halves() of contraction/contraction.h, by rows."""
    rows, columns = values.shape
    stride = (columns + 7) // 8 * 8
    return values.new_empty([2 * (rows * stride + 2 * rows + 2)], dtype=torch.float16)


def _product_flops(matrix, width):
    return 2 * matrix.shape[0] * matrix.shape[1] * width
