"""What an operator may be in a region, and how the tensors lie that it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from fusegen.aten import table
from fusegen.aten.nodes import argument, memory_of, operator_of, shape_of, value_of
from fusegen.chain import images
from fusegen.spec import model
from fusegen.spec.scalars import MAX_INTEGER

Kind = Literal["norm", "reduction", "function", "arithmetic", "dropout", "cast"]
Form = Literal["rows", "images"]
Lay = Literal["full", "row", "channel", "sample", "number"]

DTYPES = frozenset(getattr(torch, each) for each in model.DTYPES)
_OF_IMAGES = ("batch_norm", "group_norm", "instance_norm")
_MOST = images.MOST + 2
"""Dimensions of images."""
NORMS = ("batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm")
# Of which norms are made by hand. Softmax and sums alone are as fast as PyTorch's compiler makes them.
_REDUCTIONS = frozenset({"mean", "var", "std"})


@dataclass(frozen=True)
class Frame:
    """How the values of a region lie. rows: channels are the last dimension; images: dimension 1, positions behind it.

    sizes: of a value with all channels; those that change are text.
    """

    form: Form
    sizes: tuple[int | str, ...]

    @property
    def at(self) -> int:
        """The dimension of the channels."""
        return 1 if self.form == "images" else len(self.sizes) - 1

    @property
    def channels(self) -> int | str:
        return self.sizes[self.at]

    def lay(self, sizes: tuple[int | str, ...]) -> Lay | None:
        """How a tensor of such sizes lies beside the values; None if a region takes none that lies so."""
        rank = len(self.sizes)
        if sizes == self.sizes:
            return "full"
        if math.prod(1 if size == 1 else 2 for size in sizes) == 1:
            return "number" if len(sizes) <= 1 else None
        if len(sizes) > rank:
            return None
        padded = (*(1,) * (rank - len(sizes)), *sizes)
        varies = {index for index, size in enumerate(padded) if size != 1}
        if any(padded[index] != self.sizes[index] for index in varies):
            return None
        if varies == {self.at}:
            return "channel"
        if len(sizes) != rank:
            return None
        if self.form == "rows" and sizes == (*self.sizes[:-1], 1):
            return "row"
        if self.form == "rows":
            return "sample" if rank == 3 and sizes == (self.sizes[0], 1, self.sizes[2]) else None
        return "sample" if sizes == (*self.sizes[:2], *(1,) * (rank - 2)) else None


def kind_of(node: fx.Node) -> Kind | None:
    """What the node's operator may be in a region; None if a region has no such operator."""
    _, name = operator_of(node)
    value = value_of(node)
    if not name or value is None or not value.dtype.is_floating_point or value.layout is not torch.strided:
        return None
    if table.is_in_place(node.target):
        return None
    if name in NORMS:  # in float64, too: chain_of says why not
        return "norm" if frame_of(node) is not None else None
    if value.dtype not in DTYPES:
        return None
    if name == "dropout":
        return "dropout"
    if name in table.CASTS:
        source = value_of(node.args[0])
        return "cast" if source is not None and source.dtype in DTYPES and _is_cast(node) else None
    if table.find(table.ARITHMETIC, node.target):
        return "arithmetic" if _is_arithmetic(node) else None
    if name in _REDUCTIONS:
        return "reduction" if frame_of(node) is not None else None
    function = table.find(table.FUNCTIONS, node.target)
    return "function" if function is not None and _is_function(node, function) else None


def is_constant(value: Any) -> bool:
    """Whether a spec can have a number: the same in every call, finite, and exact."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= MAX_INTEGER if isinstance(value, int) else math.isfinite(value)


def frame_of(node: fx.Node) -> Frame | None:
    """How the values lie that a norm or a reduction takes; None for one that no kernel is generated for."""
    _, name = operator_of(node)
    sizes = shape_of(node.args[0])
    if len(sizes) < 2:
        return None
    is_image = name in _OF_IMAGES and len(sizes) > 2
    frame = Frame("images" if is_image else "rows", sizes)
    if name == "batch_norm":
        if any(not isinstance(argument(node, at, key), float) for at, key in ((6, "momentum"), (7, "eps"))):
            return None
        statistics = [argument(node, at, "") for at in (3, 4)]
        if (statistics[0] is None) != (statistics[1] is None):
            return None
    elif name in ("layer_norm", "rms_norm"):
        if list(node.args[1]) != [sizes[-1]]:  # type: ignore[arg-type]
            return None
    elif name == "group_norm":
        if len(sizes) > _MOST or not isinstance(argument(node, 1, "num_groups"), int):
            return None
    elif name == "instance_norm":
        statistics = [argument(node, at, "") for at in (3, 4)]
        if not 2 < len(sizes) <= _MOST or statistics != [None, None]:
            return None
    elif not _is_reduction(node, len(sizes)):
        return None
    return frame if isinstance(frame.channels, int) else None


def _is_reduction(node: fx.Node, rank: int) -> bool:
    """Whether one over the last dimension has a result that meets the values it is made of."""
    op, _ = table.find(table.OVER_CHANNELS, node.target) or ("", False)
    dims = table.dimensions(node.target, node.args, node.kwargs)
    if not op or dims is None or len(dims) != 1 or dims[0] not in (-1, rank - 1):
        return False
    if any(key == "dtype" and value is not None for key, value in node.kwargs.items()):
        return False
    if op in ("var", "std") and correction(node) is None:
        return False
    return bool(argument(node, 3 if op in ("var", "std") else 2, "keepdim", False))


def _is_function(node: fx.Node, function: table.Function) -> bool:
    """Whether one of a single tensor and of constants, all of which a step has."""
    if not isinstance(node.args[0], fx.Node) or len(node.all_input_nodes) != 1:
        return False
    for index, each in enumerate(node.target._schema.arguments[1:], 1):  # type: ignore[union-attr]
        given = argument(node, index, each.name)
        if index > len(function.keys):
            if given not in (None, each.default_value, *function.fixed):
                return False
        elif given is not None and not isinstance(given, str) and not is_constant(given):
            return False
    return True


def _is_arithmetic(node: fx.Node) -> bool:
    """Whether one of tensors and of constants."""
    if argument(node, 2, "alpha", 1) != 1:
        return False
    return all(isinstance(each, fx.Node) or is_constant(each) for each in node.args[:2])


def correction(node: fx.Node) -> int | None:
    """What the number of channels is lessened by in a variance, 0 or 1; None for another number."""
    given: Any = node.kwargs.get("correction", 1)
    if "correction" not in str(node.target):
        given = int(argument(node, 2, "unbiased", True))
    given = 1 if given is None else given
    return int(given) if given in (0, 1) else None


def _is_cast(node: fx.Node) -> bool:
    """Whether a cast changes the dtype alone: not the device, nor the memory format. A copy is none: it may be changed
    in place."""
    source = value_of(node.args[0])
    value = value_of(node)
    assert source is not None and value is not None
    kept = all(node.kwargs.get(key) is None for key in ("memory_format", "layout"))
    is_copy = source.dtype == value.dtype and memory_of(node) != memory_of(node.args[0])
    return kept and not is_copy and source.device == value.device and "memory_format" not in str(node.args)


def drops(dropout: fx.Node) -> bool:
    """Whether a dropout drops anything: in training, by a probability."""
    return bool(argument(dropout, 2, "train", True)) and argument(dropout, 1, "p", 0.5) != 0


def changes_nothing(node: fx.Node) -> bool:
    """Whether a chain has an operator's value as that of its operand: kernels compute in float32."""
    kind = kind_of(node)
    return kind == "cast" or (kind == "dropout" and not drops(node))


def is_narrower(cast: fx.Node) -> bool:
    """Whether a cast, or what may be none, makes fewer bits of a value."""
    made, given = value_of(cast), value_of(cast.args[0])
    return made is not None and given is not None and made.dtype.itemsize < given.dtype.itemsize
