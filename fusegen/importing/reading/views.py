"""The views of a trace: the same elements in another shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fusegen.aten import table as aten
from fusegen.aten.nodes import known, shape
from fusegen.importing.reading.masks_and_losses import FLATTEN
from fusegen.importing.reading.operands import Operands
from fusegen.importing.reading.shapes import is_one, merged, same_sizes, viewed, with_positions
from fusegen.importing.reading.values import CHANNELS, MADE, POSITIONS, VIEW, Layout, Number, Value
from fusegen.importing.traces.source_locations import refusal

_WHOLE = "a chain takes parts of the channels: cut the others in front of the module, or in its result"


class Views(Operands):
    """Reads view, flatten, squeeze, permute and so on. Where a value of images gets another number of dimensions, the
    view is a value of its own, until all are read: the next view may take it back."""

    def _view(self, node: fx.Node, name: str) -> Value | Number:
        found = self._either(node, 0)
        if name not in aten.COPIES:
            self._source[node] = self._node(node, 0)
        if isinstance(found, Number):
            return found
        before, sizes = shape(self._node(node, 0)), shape(node)
        if node.meta["val"].dtype != self._node(node, 0).meta["val"].dtype:
            raise self._lacking(node, "to")
        if name in ("narrow", "slice") and sizes != before:
            raise refusal("FG703", "a part of a dimension of rows or positions", self.trace.place(node), _WHOLE)
        if name == "select" and not is_one(before[self._argument(node, 1, "dim")]):
            raise self._lacking(node, name)
        layout = viewed(found.layout, before, sizes, expands=found.op == "parameter" or name in aten.EXPANSIONS)
        keys: dict[str, Any] = {}
        if layout is None and self._spatial:
            layout = self._flattened(found.layout, before, sizes)
            keys = {MADE: known(sizes[1])} if len(sizes) == 2 else {}
        elif layout is None:
            layout = merged(found.layout, before, sizes, self._first)
        if layout is None and found.keys.get("kind") == "target":
            raise refusal("FG707", "a target is viewed in another shape", self.trace.place(node), FLATTEN)
        if layout is None:
            raise self._lacking(node, "reshape" if name == "_unsafe_view" else name)
        if self._spatial and found.layout[:2] == ("0", CHANNELS) and layout[:2] == ("0", None):
            layout = (*found.layout[:2], *layout[2:])  # of which there is one
        return self._seen(node, found, layout, keys)

    def _flattened(self, layout: Layout, before: Sequence[Any], after: Sequence[Any]) -> Layout | None:
        """The layout of a view that makes one dimension of all positions, of the channels and these, or takes back the
        former; None for another view."""
        if self._is_image(layout) and str(before[0]) == str(after[0]) and len(after) == 2:
            return layout[:2]
        if self._is_image(layout) and same_sizes(before[:2], after[:2]) and len(after) == 3:
            self._together[str(after[2])] = tuple(before[2:])
            return (*layout[:2], POSITIONS)
        is_one = layout == ("0", CHANNELS, POSITIONS) and same_sizes(before[:2], after[:2])
        return self._layout if is_one and same_sizes(self._together.get(str(before[2]), ()), after[2:]) else None

    def _seen(self, node: fx.Node, found: Value, layout: Layout, keys: dict[str, Any]) -> Value:
        """A value in another shape. keys: of a view that makes other channels."""
        is_view = found.op == VIEW and not found.keys
        base = found.values[0] if is_view else found
        layout = with_positions(layout, self._layout) if base.op != "parameter" and self._spatial else layout
        same = self._in_order(layout) == self._in_order(base.layout) and not keys
        if same or not self._spatial or base.op == "parameter":
            return self.values.make(base.op, base.operands, base.keys, base.name, layout, base.place)
        return self.values.make(VIEW, (base,), keys, layout=layout, place=self.trace.place(node))

    def _permuted(self, node: fx.Node) -> Value:
        """A value with its dimensions in another order: layers over the channels take these as the last one."""
        x, rank = self._operand(node, 0), len(shape(self._node(node, 0)))
        self._source[node] = self._node(node, 0)
        numbered = torch.empty(tuple(range(rank)), device="meta")  # whose sizes say which dimension is which
        order = node.target(numbered, *node.args[1:], **node.kwargs).shape  # type: ignore[operator]
        return self._seen(node, x, tuple(x.layout[dim] for dim in order), {})

    def _without_view(self, view: Value, base: Value) -> Value:
        """A view as steps, or none. base: what it is of, without views."""
        target, made = self._in_order(view.layout), self.values.make
        if base.reduced and not base.reduces_channels and not view.keys:
            kept = base.values[0].layout
            dropped = tuple(label for dim, label in enumerate(kept) if dim not in base.reduced)
            form = {True: kept, False: dropped}[not base.keys["keepdim"]]
            if target == form:
                keys = {**base.keys, "keepdim": not base.keys["keepdim"]}
                return made(base.op, base.operands, keys, base.name, form, base.place)
        is_dropped = CHANNELS in base.layout and CHANNELS not in target  # the dimension of one channel
        target = (*base.layout[:2], *target[2:]) if is_dropped else target
        if target != base.layout:
            base = self._reshaped(view, base, target)
        if is_dropped:
            keys = {"keepdim": False, "dim": 1}
            return made("mean", (base,), keys, layout=("0", None, *base.layout[2:]), place=view.place)
        return base

    def _reshaped(self, view: Value, base: Value, target: Layout) -> Value:
        """A value with another number of dimensions of positions."""
        made = self.values.make
        if len(base.layout) > 2 and any(target[2:]):
            hint = "a chain has all dimensions of positions, those that a reduction leaves, or none"
            raise refusal("FG707", "a view that drops some dimensions of positions", view.place, hint)
        if len(base.layout) > 2:
            base = made("flatten", (base,), view.keys, layout=base.layout[:2], place=view.place)
        if len(target) > 2:
            base = made("unsqueeze", (base,), {"positions": len(target) - 2}, layout=target, place=view.place)
        return base
