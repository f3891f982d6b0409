"""The operands of a trace's nodes, as values and numbers that were read before."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from fusegen.aten import table as aten
from fusegen.aten.nodes import argument, shape
from fusegen.importing.reading.layers import Layers
from fusegen.importing.reading.shapes import first_layout, in_order, is_in_order, leaf_layout
from fusegen.importing.reading.values import CHANNELS, POSITIONS, Layout, Number, Value, Values
from fusegen.importing.traces.arguments import Arguments
from fusegen.importing.traces.source_locations import SourceLine, refusal
from fusegen.importing.traces.trace import Leaf, Trace
from fusegen.ops.catalogue import STEPS
from fusegen.ops.lacking import unknown_op

# What inputs are that are no floating ones.
KINDS = {torch.bool: "mask", torch.int64: "target"}
_OPS = tuple(op for step in STEPS for op in step.ops())


class Operands:
    """What a reader of a trace has found so far."""

    def __init__(self, trace: Trace, arguments: Arguments, values: Values) -> None:
        self.trace, self.arguments, self.values = trace, arguments, values
        self.owners = Layers(trace)
        self._found: dict[fx.Node, Value | Number | None] = {}
        self._source: dict[fx.Node, fx.Node] = {}  # the node whose memory a node is a view of
        self._casts: set[fx.Node] = set()  # which are copies of their operand in some dtypes
        self._counts: dict[fx.Node, int] = {}  # of parts, by the node that divides
        self._unequal: dict[fx.Node, list[int]] = {}  # the channels of parts, likewise
        self._inputs: list[str] = []
        self._first: tuple[Any, ...] = ()  # the sizes of the first input
        self._rank = 0
        self._spatial = arguments.positions.spatial if arguments.positions else 0  # dimensions behind the channels
        self._layout: Layout = ()  # of the first input
        self._together: dict[str, tuple[Any, ...]] = {}  # the positions of which views make one dimension, by its size
        self._dtype: torch.dtype | None = None  # of the first input

    def _leaf(self, node: fx.Node, leaf: Leaf) -> Value | None:
        sizes = shape(node)
        self._check_leaf(node, leaf)
        if leaf.kind == "input":
            if not self._inputs:
                self._first, self._rank = sizes, len(sizes)
                self._layout = first_layout(self._rank, self._spatial)
                if self._rank < 2 or any(isinstance(size, int) and size < 2 for size in sizes):
                    hint = "the first input is [rows, channels]"
                    message = (
                        f"the first example input has the shape {list(sizes)}: it needs two dimensions of 2 or more"
                    )
                    raise refusal("FG701", message, None, hint)
            self._inputs.append(leaf.name)
            layout = leaf_layout(sizes, self._layout, self._first)
            kind = KINDS.get(node.meta["val"].dtype)
            return self.values.make("input", (), {"kind": kind} if kind else {}, leaf.name, layout)
        if leaf.kind == "parameter" or self.owners.is_held(leaf):
            return self.values.make("parameter", name=leaf.name, layout=leaf_layout(sizes))
        return None

    def _check_leaf(self, node: fx.Node, leaf: Leaf) -> None:
        """All tensors are of the first input's dtype, but for the counts of batch norms."""
        dtype = node.meta["val"].dtype
        if leaf.kind == "input" and self._dtype is None:
            self._dtype = dtype
            if not dtype.is_floating_point:
                raise refusal(
                    "FG701", f"the first example input is of {dtype}", None, "a chain has floating point inputs"
                )
        if leaf.kind == "input" and self._inputs and dtype in KINDS:
            return
        if dtype != self._dtype and leaf.kind != "constant" and not self.owners.counts_batches(leaf.name):
            hint = "the tensors of a chain have one dtype"
            raise refusal(
                "FG706", f"the {leaf.kind} '{leaf.name}' is of {dtype}, the first input of {self._dtype}", None, hint
            )

    @property
    def _form(self) -> str:
        """The shape of the values of the chain, in words."""
        return "[batch, channels, positions]" if self._spatial else "[rows, channels]"

    def _in_order(self, layout: Layout) -> Layout:
        """The layout of a value of images as its op has it, whatever it is viewed as."""
        positions = self._layout[2:]
        each = [(label,) if label != POSITIONS else positions for label in layout]
        return in_order(tuple(label for labels in each for label in labels))

    def _is_image(self, layout: Layout) -> bool:
        """Whether a value has the batch, the channels and dimensions of positions, in this order."""
        is_whole = layout[:2] == ("0", CHANNELS) and len(layout) > 2 and POSITIONS not in layout
        return self._spatial > 0 and is_whole and is_in_order(layout)

    def _root(self, node: fx.Node) -> fx.Node:
        while node in self._source:
            node = self._source[node]
        return node

    def _is_cast(self, node: fx.Node) -> bool:
        """Whether a node is a view of a cast."""
        while node not in self._casts and node in self._source:
            node = self._source[node]
        return node in self._casts

    def _node(self, node: fx.Node, index: int) -> fx.Node:
        """An argument that is the result of another node."""
        found = node.args[index]
        assert isinstance(found, fx.Node), node
        return found

    def _either(self, node: fx.Node, index: int) -> Value | Number:
        given = node.args[index]
        if not isinstance(given, fx.Node):
            return self._number(node, index, "", given)
        found = self._found.get(given)
        if found is None:
            raise self._no_value(node, given)
        return found

    def _no_value(self, node: fx.Node, given: fx.Node) -> Exception:
        """Why a node that another one takes is no value of a chain."""
        where, leaf = self.trace.place(node), self.trace.leaves.get(self._root(given))
        constants = "numbers of a chain are constants"
        if leaf is not None:
            what = f"the {leaf.kind} '{leaf.name}'" if leaf.kind == "buffer" else "a tensor that no state_dict has"
            hint = "make it an nn.Parameter, a persistent buffer, a number, or an input"
            return refusal("FG706", f"{what} is part of the chain", where, hint)
        if aten.names(given.target)[1] == "item":
            return refusal("FG703", "a number read from a tensor is an operand", where, constants)
        if not shape(given):
            return refusal("FG703", "a size that changes is an operand", where, constants)
        return refusal("FG704", "a view of a value that was changed in place", where, "change a copy")

    def _operand(self, node: fx.Node, index: int) -> Value:
        found = self._either(node, index)
        if isinstance(found, Number):
            raise refusal(
                "FG703", "an operator of constants alone", self.trace.place(node), "compute it in the constructor"
            )
        return found

    def _argument(self, node: fx.Node, index: int, key: str) -> Any:
        return argument(node, index, key)

    def _number(self, node: fx.Node, index: int, key: str, value: Any) -> Number:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refusal("FG703", f"the operand {value!r}", self.trace.place(node), "numbers of a chain are constants")
        if not math.isfinite(value):
            raise refusal("FG703", f"the operand {value}", self.trace.place(node), "numbers of a chain are finite")
        return Number(value, self.arguments.of_number(self.trace, node, index, key, value))

    def _make(self, node: fx.Node, op: str, operands: tuple, keys: Any = None, name: str = "", *, layout: Any) -> Value:
        self._check_dtype(node)
        return self.values.make(op, operands, keys, name, layout, self.trace.place(node))

    def _check_dtype(self, node: fx.Node) -> None:
        """A chain has one dtype, which its input decides; in 16 bits it is computed in float32."""
        asked = {each for each in (*node.args, *node.kwargs.values()) if isinstance(each, torch.dtype)}
        value = node.meta.get("val")
        values = value if isinstance(value, tuple | list) else [value]
        if not asked | ({values[0].dtype} if isinstance(values[0], Tensor) else set()) <= self._dtypes:
            raise self._lacking(node, "to")

    @property
    def _dtypes(self) -> set[torch.dtype | None]:
        """What a value in the middle of the chain may be of."""
        return {self._dtype, *([torch.float32] if self._dtype in (torch.bfloat16, torch.float16) else [])}

    def _lacking(self, node: fx.Node, name: str) -> Exception:
        return lacking(name, self.trace.place(node))


def lacking(name: str, where: SourceLine | None) -> Exception:
    """What to say of an operator that no chain has."""
    if name in aten.REFUSED:
        return refusal("FG703", aten.REFUSED[name][0], where, aten.REFUSED[name][1])
    message, hint = unknown_op(name, _OPS)
    if name in _OPS:
        message, hint = f"a chain has no {name} that is called like this", f"`fusegen ops {name}` says what it has"
    elif message.startswith("unknown op"):
        message, hint = f"a chain has no '{name}'", "`fusegen ops` lists what it has"
    return refusal("FG703", message, where, hint)
