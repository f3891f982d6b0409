"""A graph's values in NumPy, in double precision: what a plan is compared with.

Arithmetic and reductions are what they are called, since rewrites know their algebra. Any other function is opaque to
planning: a smooth stand-in takes its place, another one for each function and each operand. A wrong operand, value or
order then shows in every element, and no kink, tie or overflow hides it. Of functions whose gradients go by the sign of
x or of the result, planning knows that both have one sign, and so have their stand-ins.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from fusegen.errors import InternalError
from fusegen.ir.axes import Axes
from fusegen.ir.functions.catalogue import FUNCTIONS
from fusegen.ir.graph import Node, ancestors

Array = np.ndarray
Value = Array | tuple[Array, Array]
"""An array that broadcasts to the elements of the view: of a length or 1 along each axis. A value for each block of an
axis is repeated within the block. Of moments the mean and the variance."""

_KNOWN: dict[str, Callable[..., Array]] = {
    "standardize": lambda x, mean, rstd: (x - mean) * rstd,
    "rescale": lambda x, rrms: x * rrms,
    "standardize_backward": lambda g, hat, rstd, s, q, n: rstd * (g - (hat * (q * n) + s * n)),
    "rescale_backward": lambda g, hat, rrms, q, n: rrms * (g - hat * (q * n)),
    "rsqrt": lambda x: 1 / np.sqrt(np.abs(x)),
}
"""The C++ of `fusegen.ir.functions.normalisation`, which rewrites take apart, and what keeps values of norms near 1."""

_TIE = 1e-9  # what differs by less is equal: a norm of one element is zero, whatever a rewrite makes of that zero
_ROOT = 16  # literals are replaced by their roots: products of literals stay products, and none is extreme


@dataclass(frozen=True)
class Sizes:
    """lengths: of the axes of a view, in order. blocks: of channels that are cut, whatever their number in the
    graph, which has only one. samples: how many blocks of rows have values or sums of their own."""

    lengths: Mapping[str, int]
    blocks: int
    samples: int = 1

    def shape(self, axes: Axes) -> tuple[int, ...]:
        """The NumPy shape of a value over these axes: each axis of the view in order, of length 1 where the value lacks
        it."""
        return tuple(length if name in axes else 1 for name, length in self.lengths.items())

    def count(self, axes: Axes, name: str) -> int:
        """How many values there are along an axis."""
        if name not in axes:
            return 1
        if axes.blocks(name) is None:
            return self.lengths[name]
        return self.samples if name == "N" else self.blocks

    def number(self, axes: Axes) -> int:
        """How many elements one value over these axes stands for."""
        return math.prod(self.lengths.values()) // math.prod(self.count(axes, name) for name in self.lengths)


def evaluate(sinks: Iterable[Node], given: Mapping[Node, Value], sizes: Sizes) -> dict[Node, Value]:
    """The values of `sinks` and of all that they need. given: leaves, and other nodes that are not computed. Callers
    decide what NumPy says of infinities and NaN."""
    found: dict[Node, Value] = {}
    for node in ancestors(sinks, given):
        found[node] = given[node] if node in given else value_of(node, [found[o] for o in node.operands], sizes)
    return found


def value_of(node: Node, operands: list[Value], sizes: Sizes) -> Value:
    """A node's value, by those of its operands."""
    if node.is_reduction:
        (x,) = operands
        return reduce(node.op, np.broadcast_to(_array(x), sizes.shape(node.operands[0].axes)), node.axes, sizes)
    match node.op:
        case "literal":
            return np.full((1,) * len(sizes.lengths), moderate(float(str(node.attribute))))
        case "count":
            assert isinstance(node.attribute, Axes)
            return np.full((1,) * len(sizes.lengths), float(sizes.number(node.attribute)))
        case "channel":
            return numbers("C", sizes)
        case "mean" | "variance":
            (moments,) = operands
            assert isinstance(moments, tuple)
            return moments[node.op == "variance"]
    if node.is_leaf:
        raise InternalError(f"{node!r} has no value")
    return function(node.op)(*map(_array, operands))


def reduce(op: str, x: Array, axes: Axes, sizes: Sizes) -> Value:
    """The reduction of all that is in x, to one value for each element of `axes`."""
    counts = [sizes.count(axes, name) if length > 1 else 1 for name, length in zip(sizes.lengths, x.shape, strict=True)]
    widths = [length // count for count, length in zip(counts, x.shape, strict=True)]
    parts = x.reshape([size for block in zip(counts, widths, strict=True) for size in block])
    over = tuple(range(1, parts.ndim, 2))

    def repeated(result: Array) -> Array:
        for index, (count, width) in enumerate(zip(counts, widths, strict=True)):
            if count > 1:
                result = result.repeat(width, 2 * index + 1)
        return result.reshape([result.shape[i] * result.shape[i + 1] for i in range(0, result.ndim, 2)])

    match op:
        case "sum":
            return repeated(parts.sum(over, keepdims=True))
        case "moments":
            mean = parts.mean(over, keepdims=True)
            return repeated(mean), repeated(np.square(parts - mean).mean(over, keepdims=True))
        case "max" | "amax" | "peak":
            return repeated(parts.max(over, keepdims=True))
        case "ties":
            return repeated(_are_largest(parts, over).sum(over, keepdims=True).astype(float))
        case "argmax":
            place = np.broadcast_to(numbers("C", sizes), x.shape).reshape(parts.shape)
            return repeated(np.where(_are_largest(parts, over), place, np.inf).min(over, keepdims=True))
    raise InternalError(f"reduction {op} has no value")


def _are_largest(x: Array, over: tuple[int, ...]) -> Array:
    """Which elements are the largest, up to rounding."""
    peak = x.max(over, keepdims=True)
    return x >= peak - _TIE * np.maximum(1, np.abs(peak))


def numbers(axis: str, sizes: Sizes) -> Array:
    """0, 1, 2 ... along an axis."""
    shape = [length if name == axis else 1 for name, length in sizes.lengths.items()]
    return np.arange(float(sizes.lengths[axis])).reshape(shape)


def moderate(number: float) -> float:
    """A number that a literal of the graph is replaced by, near 1, of another size for each."""
    if not math.isfinite(number):
        return math.copysign(3.0, number)
    return math.copysign(abs(number) ** (1 / _ROOT), number)


@cache
def function(op: str) -> Callable[..., Array]:
    """What stands for an element-wise function: its formula where rewrites know the algebra of that."""
    known = FUNCTIONS.get(op)
    if known is not None and not known.is_call:
        # A pattern such as "{} + {}": the same in C++ and in Python.
        names = [f"x{index}" for index in range(known.cpp.count("{}"))]
        return eval(f"lambda {', '.join([*names, '*_'])}: {known.cpp.format(*names)}", {"Acc": float})
    if known is not None and known.by_sign:
        return np.arcsinh
    of = FUNCTIONS.get(op.removesuffix("_backward"))
    if of is not None and of.by_sign:
        return lambda g, x: np.arcsinh(g) * np.where(x > _TIE, 1, 0.5)
    return _KNOWN.get(op) or _stand_in(op)


def _stand_in(op: str) -> Callable[..., Array]:
    """A sum of logarithms, in effect: however large operands are, relative rounding errors stay as small."""
    phase = zlib.crc32(op.encode()) / 2**32

    def opaque(*operands: Array) -> Array:
        terms = (np.arcsinh((0.4 + 0.7 * index + phase) * x + phase) for index, x in enumerate(operands, 1))
        return 1.5 + sum(terms, start=np.zeros(1)) / len(operands)

    return opaque


def largest(values: Iterable[Value]) -> float:
    """The largest finite element of some values, at least 1."""
    return max((float(np.abs(x[np.isfinite(x)]).max(initial=1)) for x in map(_array, values)), default=1.0)


def agree(found: Value, expected: Value, relative: float, absolute: float) -> bool:
    """Whether two values are the same up to rounding: `relative` of the largest element, and `absolute`. What is NaN or
    infinite in one is so in the other."""
    if isinstance(found, tuple) and isinstance(expected, tuple):
        return all(agree(*pair, relative, absolute) for pair in zip(found, expected, strict=True))
    one, other = _array(found), _array(expected)
    if np.abs(one - other).max() <= relative * np.abs(other).max() + absolute:
        return True
    one, other = np.broadcast_arrays(one, other)
    finite = np.isfinite(other)
    if finite.all() or not np.array_equal(finite, np.isfinite(one)):
        return False
    distance = np.abs(one[finite] - other[finite])
    return bool(distance.max(initial=0) <= relative * np.abs(other[finite]).max(initial=0) + absolute)


def _array(value: Value) -> Array:
    return value[0] if isinstance(value, tuple) else value


def leaves(sinks: Iterable[Node], stop: Collection[Node] = ()) -> list[Node]:
    """The leaves that have a value of their own in each call, of all that `sinks` need."""
    return [n for n in ancestors(sinks, stop) if n.op in ("tensor", "scalar", "draw")]
