"""The operators of a trace that divide the channels, and those that take a part."""

from __future__ import annotations

from torch import fx

from fusegen.aten import table as aten
from fusegen.aten.nodes import shape
from fusegen.importing.reading.operands import Operands
from fusegen.importing.reading.shapes import is_channels
from fusegen.importing.reading.values import Value
from fusegen.importing.traces.source_locations import refusal


class Parts(Operands):
    """Reads chunk, split and glu."""

    def _parts(self, node: fx.Node, given: str) -> Value:
        """What is divided, of which the next nodes take a part each. given: `count`, `size` of a part or `sizes`."""
        x, sizes = self._operand(node, 0), shape(self._node(node, 0))
        number, (dim,) = self._argument(node, 1, ""), aten.dimensions(node.target, node.args, node.kwargs) or [0]
        width = sizes[dim]
        if given == "sizes" and len(set(number)) > 1:
            raise self._lacking(node, "split_with_sizes")
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
