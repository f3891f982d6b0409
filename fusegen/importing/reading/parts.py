"""The operators of a trace that divide the channels, those that take a part, and those that join channels."""

from __future__ import annotations

from typing import Any

from torch import fx

from fusegen.aten import table as aten
from fusegen.aten.nodes import known, shape
from fusegen.importing.reading.operands import Operands
from fusegen.importing.reading.shapes import is_channels
from fusegen.importing.reading.values import CHANNELS, MADE, Layout, Value
from fusegen.importing.traces.source_locations import refusal


class Parts(Operands):
    """Reads chunk, split, narrow, glu and cat."""

    def _parts(self, node: fx.Node, given: str) -> Value:
        """What is divided, of which the next nodes take a part each. given: `count`, `size` of a part or `sizes`."""
        x, sizes = self._operand(node, 0), shape(self._node(node, 0))
        number, (dim,) = self._argument(node, 1, ""), aten.dimensions(node.target, node.args, node.kwargs) or [0]
        width = sizes[dim]
        parts = _sizes_of_parts(given, number, width)
        if len(set(parts)) > 1 and is_channels(x.layout, dim):
            self._unequal[node] = parts
            return x
        number = len(number) if given == "sizes" else number
        count = width // number if given == "size" and isinstance(width, int) and isinstance(number, int) else number
        if not is_channels(x.layout, dim):
            hint = f"a chain divides the channels, {'dimension 1' if self._spatial else 'the last dimension'}"
            raise refusal("FG703", "chunk over other dimensions", self.trace.place(node), hint)
        if not isinstance(width, int) or not isinstance(count, int) or count < 2 or width % count:
            hint = "the parts of a chain's channels are equal"
            raise refusal("FG703", f"chunk of {width} channels into {number}", self.trace.place(node), hint)
        self._counts[node] = count
        return x

    def _unequal_part(self, node: fx.Node, source: fx.Node, index: int) -> Value:
        """One of the parts of a split, of which not all have one size."""
        sizes = self._unequal[source]
        index %= len(sizes)
        return self._some_channels(node, self._operand(node, 0), sum(sizes[:index]), sizes[index])

    def _is_narrowing(self, node: fx.Node) -> bool:
        """Whether a node takes some of the channels of a value."""
        found, dim = self._found.get(self._node(node, 0)), self._argument(node, 1, "dim") or 0
        before, after = shape(self._node(node, 0)), shape(node)
        is_other = isinstance(before[dim], int) and isinstance(after[dim], int) and before[dim] != after[dim]
        return is_other and isinstance(found, Value) and is_channels(found.layout, dim) and found.op != "parameter"

    def _narrowed(self, node: fx.Node, name: str) -> Value:
        x, dim, start = (
            self._operand(node, 0),
            self._argument(node, 1, "dim") or 0,
            self._argument(node, 2, "start") or 0,
        )
        if name == "slice" and self._argument(node, 4, "step") not in (None, 1):
            raise self._lacking(node, "slice")
        before, after = shape(self._node(node, 0))[dim], shape(node)[dim]
        return self._some_channels(node, x, start if start >= 0 else before + start, after)

    def _some_channels(self, node: fx.Node, x: Value, start: int, length: int) -> Value:
        keys = {"start": start, "length": length, MADE: length}
        return self._make(node, "narrow", (x,), keys, layout=x.layout)

    def _joined(self, node: fx.Node) -> Value:
        """Several values as one with the channels of all."""
        given, dim = node.args[0], self._argument(node, 1, "dim") or 0
        found = [self._found.get(each) for each in given if isinstance(each, fx.Node)]  # type: ignore[union-attr]
        values = [each for each in found if isinstance(each, Value)]
        layouts = [self._with_channels(each, dim) for each in given]  # type: ignore[union-attr]
        first = layouts[0]
        if len(values) < len(found) or not is_channels(first, dim) or any(each != first for each in layouts):
            hint = (
                f"a chain joins channels, {'dimension 1' if self._spatial else 'the last dimension'}, of whole values"
            )
            raise refusal(
                "FG703", "cat of other dimensions, or of values that lie otherwise", self.trace.place(node), hint
            )
        return self._make(node, "cat", tuple(values), {MADE: known(shape(node)[dim])}, layout=first)

    def _with_channels(self, given: Any, dim: int) -> Layout:
        """The layout of a value of images that is joined to others, also of one channel, as reductions leave it."""
        found = self._found.get(given)
        layout = found.layout if isinstance(found, Value) else ()
        is_one = self._spatial and len(layout) == len(self._layout) and dim % len(layout) == 1 and layout[1] is None
        return (layout[0], CHANNELS, *layout[2:]) if is_one else layout

    def _part(self, node: fx.Node, source: fx.Node, index: int) -> Value:
        x, count = self._operand(node, 0), self._counts[source]
        self._source[node] = self._node(source, 0)
        keys = {"index": index % count, "count": count}
        return self.values.make("part", (x,), keys, layout=x.layout, place=self.trace.place(source))

    def _glu(self, node: fx.Node) -> Value:
        x, (dim,) = self._operand(node, 0), aten.dimensions(node.target, node.args, node.kwargs) or [-1]
        if not is_channels(x.layout, dim):
            raise self._lacking(node, "glu")
        return self._make(node, "glu", (x,), layout=x.layout)


def _sizes_of_parts(given: str, number: Any, width: Any) -> list[int]:
    """The channels of each part of a split; empty where nobody knows them. given, number: see _parts."""
    if given == "sizes":
        return list(number)
    if given == "size" and isinstance(width, int) and isinstance(number, int):
        return [min(number, width - start) for start in range(0, width, number)]
    return []
