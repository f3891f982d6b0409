"""The values that a trace returns: what they may be, and each as one value whatever shapes it is viewed in."""

from __future__ import annotations

from torch import fx

from fusegen.aten.nodes import shape
from fusegen.importing.reading.shapes import is_exchanged, is_in_order, is_one, shown
from fusegen.importing.reading.values import CHANNELS, POSITIONS, ROWS, UNKNOWN, VIEW, Layout, Number, Value, replaced
from fusegen.importing.reading.views import Views
from fusegen.importing.traces.source_locations import refusal


class Results(Views):
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
        if found.layout[:1] == (ROWS,) and found.op == "cross_entropy":
            hint = "give the losses of rows the shape of the target"
            raise refusal(
                "FG705", "the result has the losses of all rows in one dimension", self.trace.place(node), hint
            )
        if found.op != "cross_entropy" and not is_exchanged(found.layout) and not self._is_result(node, found.layout):
            message = f"the result has another shape: {shown(shape(node), self._first, self._spatial)}"
            hint = f"the result of a chain is {self._form}, or one value for each of its rows"
            raise refusal("FG705", message, self.trace.place(node), hint)
        return found

    def _is_result(self, node: fx.Node, layout: Layout) -> bool:
        """Whether a value has the channels where the first input has them, or none."""
        at = self._layout.index(CHANNELS)
        sizes = shape(node)
        if len(layout) != len(sizes) or any(
            layout[dim] is None and not is_one(sizes[dim]) for dim in range(len(sizes))
        ):
            return False
        if self._spatial:
            is_whole = CHANNELS in layout or layout[1:2] == (None,) or None not in layout
            return is_whole and POSITIONS not in layout and is_in_order(layout)
        before = self._layout[:at]
        return layout in (self._layout, (*before, None), before)

    def _without_views(self, results: list[Value]) -> list[Value]:
        """The same with one value for all shapes that it is viewed in. Of a result that has no dimension for the
        channels, the last reductions drop it, or a mean over its one channel."""
        drops = [each for each in results if self._drops_channels(each.layout) or each.layout[-1:] == ("0",)]
        last = {each for result in drops for each in _last_reductions(result)}

        def made(value: Value, operands: tuple[Value | Number, ...]) -> Value:
            if value.op == VIEW:
                (base,) = operands
                assert isinstance(base, Value)
                return self._without_view(value, base)
            layout: Layout = tuple(label for label in value.layout if label is not None)
            if layout[:1] == (ROWS,):
                layout = (*self._layout[:-1], *layout[1:])
            if self._spatial and UNKNOWN not in layout:  # channels that are last in a part of forward
                layout = self._in_order(value.layout)
            keys = {**value.keys, "keepdim": False} if id(value) in last else value.keys
            return self.values.make(value.op, operands, keys, value.name, layout, value.place)

        return list(map(self._of_one_channel, results, replaced(results, made)))

    def _of_one_channel(self, seen: Value, value: Value) -> Value:
        """A result without the dimension of its one channel. seen: with its shape in the trace."""
        if value.op == "cross_entropy" or _last_reductions(seen) or not self._drops_channels(seen.layout):
            return value
        if self._spatial and (CHANNELS in value.layout or len(value.layout) != 2 or _is_dropped(value)):
            return value
        keys = {"keepdim": False, **({"dim": 1} if self._rank == 2 else {})}
        return self.values.make("mean", (value,), keys, layout=value.layout, place=value.place)

    def _drops_channels(self, layout: Layout) -> bool:
        """Whether a result has no dimension for the channels."""
        if self._spatial:
            return layout[:1] == ("0",) and CHANNELS not in layout and layout[1:2] != (None,)
        return layout == self._layout[:-1]


def _is_dropped(value: Value) -> bool:
    """Whether a value that is seen as no view has no dimension for the channels already."""
    if value.reduces_channels:
        return not value.keys.get("keepdim")
    return CHANNELS not in value.layout and any(map(_is_dropped, value.values))


def _last_reductions(result: Value) -> set[int]:
    """The reductions to rows that nothing else reduces before the result. Not one whose region ends there, or at
    another reduction, with more behind: that takes a dimension of one channel."""
    found, stack = set(), [(result, False, False)]
    while stack:
        value, is_behind, is_reduced = stack.pop()
        if value.reduces_channels:
            found |= set() if is_reduced or (is_behind and max(value.reduced) > 1) else {id(value)}
        elif value.op != VIEW or CHANNELS in value.layout or CHANNELS not in value.values[0].layout:
            is_behind, is_reduced = is_behind or value.op != VIEW, is_reduced or bool(value.reduced)
            stack += [(each, is_behind, is_reduced) for each in value.values]
    return found
