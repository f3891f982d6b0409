"""The values that a trace returns: what they may be, and each as one value whatever shapes it is viewed in."""

from __future__ import annotations

from torch import fx

from fusegen.aten.nodes import shape
from fusegen.importing.reading.operands import Operands
from fusegen.importing.reading.shapes import is_exchanged, is_one, shown
from fusegen.importing.reading.values import CHANNELS, ROWS, Layout, Number, Value, replaced
from fusegen.importing.traces.source_locations import refusal


class Results(Operands):
    """Checks results, and leaves views out."""

    def _result(self, node: fx.Node) -> Value:
        found, source = self._found[node], self._root(node)
        if source in self.trace.leaves:
            what = self.trace.leaves[source]
            raise refusal(
                "FG705",
                f"the result is the {what.kind} '{what.name}' itself",
                self.trace.place(node),
                "return a new tensor",
            )
        if not isinstance(found, Value):
            raise refusal("FG703", "the result is a constant", self.trace.place(node))
        if found.op != "cross_entropy" and node.meta["val"].dtype != self._dtype:
            raise self._lacking(node, "to")
        at = self._layout.index(CHANNELS)
        before, after = self._layout[:at], self._layout[at + 1 :]
        wrong = found.layout not in (self._layout, (*before, None, *after), (*before, *after))
        wrong = wrong and found.op != "cross_entropy" and not is_exchanged(found.layout)
        if wrong or (found.layout == (*before, None, *after) and not is_one(shape(node)[at])):
            message = f"the result has another shape: {shown(shape(node), self._first, self._spatial)}"
            hint = f"the result of a chain is {self._form}, or one value for each of its rows"
            raise refusal("FG705", message, self.trace.place(node), hint)
        return found

    def _without_views(self, results: list[Value]) -> list[Value]:
        """The same with one value for all shapes that it is viewed in. Of a result that has no dimension for the
        channels, the last reductions drop it."""
        at = self._layout.index(CHANNELS)
        dropped = (*self._layout[:at], *self._layout[at + 1 :])
        drops = [each for each in results if each.layout == dropped or each.layout[-1:] == ("0",)]
        last = {each for result in drops for each in _last_reductions(result)}

        def made(value: Value, operands: tuple[Value | Number, ...]) -> Value:
            layout: Layout = tuple(label for label in value.layout if label is not None)
            if layout[:1] == (ROWS,):
                layout = (*self._layout[:-1], *layout[1:])
            if self._spatial and {*layout} <= {*self._layout}:  # channels that are last in a part of forward
                layout = tuple(label for label in self._layout if label in layout)
            keys = {**value.keys, "keepdim": False} if id(value) in last else value.keys
            return self.values.make(value.op, operands, keys, value.name, layout, value.place)

        return replaced(results, made)


def _last_reductions(result: Value) -> set[int]:
    """The reductions to rows that nothing else reduces before the result."""
    found, stack = set(), [result]
    while stack:
        value = stack.pop()
        if "keepdim" in value.keys:
            found.add(id(value))
        else:
            stack += value.values
    return found
