"""The operators of a trace that reduce the channels, or normalise over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from fusegen.aten import table as aten
from fusegen.aten.nodes import shape
from fusegen.importing.reading.operands import Operands
from fusegen.importing.reading.shapes import is_reducible, reduced
from fusegen.importing.reading.values import CHANNELS, POSITIONS, Number, Value
from fusegen.importing.traces.source_locations import refusal


class Reductions(Operands):
    """Reads softmax, sums, norms and the like."""

    def _over_channels(self, node: fx.Node, op: str, same: bool) -> Value:
        x = self._operand(node, 0)
        dims, sizes = aten.dimensions(node.target, node.args, node.kwargs) or [], shape(self._node(node, 0))
        positions = self._dims_of_positions(x, dims)
        if positions is not None:
            return self._over_positions(node, op, x, positions, same)
        if len(dims) != 1 or not isinstance(dims[0], int) or not is_reducible(x.layout, dims[0], sizes):
            hint = f"a chain reduces over the channels, {'dimension 1' if self._spatial else 'the last dimension'}"
            raise refusal(
                "FG703", f"{op} over {'all' if dims == [None] else 'other'} dimensions", self.trace.place(node), hint
            )
        matrix = self._rank == 2 and len(x.layout) == 2
        keys: dict[str, Any] = {"dim": 1} if self._spatial or (dims[0] >= 0 and matrix) else {}
        if same:
            return self._make(node, op, (x,), keys, layout=x.layout)
        keys |= self._options(node, op)
        layout = reduced(x.layout, dims[0], self._keeps(node, op))
        return self._make(node, op, (x,), {"keepdim": True, **keys}, layout=layout)

    def _dims_of_positions(self, x: Value, dims: list[Any]) -> list[int] | None:
        """The dimensions of a value of images that are reduced, in its own order, if one is of positions."""
        if not self._spatial or not dims or any(not isinstance(dim, int) for dim in dims):
            return None
        labels = [x.layout[dim] for dim in dims]
        own = self._in_order(x.layout)
        labels = [each for label in labels for each in (self._layout[2:] if label == POSITIONS else (label,))]
        if own == x.layout:
            found = [dim % len(x.layout) for dim in dims]  # of which one of one element has no label
        else:
            found = [own.index(label) for label in labels if label in own and CHANNELS in own]
        fits = len({*found}) == len(labels) and 0 not in found and max(found) > 1
        return sorted(found) if fits else None

    def _over_positions(self, node: fx.Node, op: str, x: Value, dims: list[int], same: bool) -> Value:
        """What is over positions, and maybe over the channels too. Of softmax over several dimensions, which are one in
        a view, a chain has the parts."""
        if same and len(dims) > 1:
            total = self._make(node, "logsumexp", (x,), {"keepdim": True, **_dim(dims)}, layout=x.layout)
            logarithm = self._make(node, "sub", (x, total), layout=x.layout)
            return logarithm if op == "log_softmax" else self._make(node, "exp", (logarithm,), layout=x.layout)
        if same:
            return self._make(node, op, (x,), _dim(dims), layout=x.layout)
        keeps, options = self._keeps(node, op), self._options(node, op)
        given = {dim % len(x.layout) for dim in aten.dimensions(node.target, node.args, node.kwargs) or []}
        kept = [None if label == CHANNELS and dim in given else label for dim, label in enumerate(x.layout)]
        layout = tuple(label for dim, label in enumerate(kept) if keeps or dim not in given)
        own = self._in_order(x.layout)
        *others, last = _one_by_one(op, dims, keeps)
        for part in others:
            own = own if keeps else tuple(label for dim, label in enumerate(own) if dim not in part)
            x = self._make(node, op, (x,), {"keepdim": keeps, **_dim(part), **options}, layout=own)
        keys = {"keepdim": keeps or 1 in last, **_dim(last), **options}
        return self._make(node, op, (x,), keys, layout=layout)

    def _keeps(self, node: fx.Node, op: str) -> bool:
        return bool(self._argument(node, 3 if op in ("var", "std", "norm") else 2, "keepdim"))

    def _options(self, node: fx.Node, op: str) -> dict[str, Number]:
        """What a reduction has besides dimensions."""
        if op in ("var", "std"):
            return {"correction": self._correction(node, op)}
        return {"p": self._order(node)} if op == "norm" else {}

    def _correction(self, node: fx.Node, op: str) -> Number:
        """What a variance is divided by, less than the number of channels."""
        if "correction" in str(node.target):
            given = self._argument(node, 2, "correction")
            correction = 1 if given is None else given
        else:
            correction = 0 if self._argument(node, 2, "unbiased") is False else 1
        if correction not in (0, 1):
            hint = "a chain has a correction of 0 or 1"
            raise refusal("FG703", f"{op} with a correction of {correction}", self.trace.place(node), hint)
        return Number(int(correction))

    def _order(self, node: fx.Node) -> Number:
        given = self._argument(node, 1, "ord")
        order = 2 if given is None else given
        if order not in (1, 2):
            raise refusal("FG703", f"the norm of order {order}", self.trace.place(node), "a chain has those of 1 and 2")
        return Number(int(order))


def _dim(dims: Sequence[int]) -> dict[str, Any]:
    """The key that says which dimensions a step is over."""
    return {"dim": dims[0] if len(dims) == 1 else tuple(dims)}


def _one_by_one(op: str, dims: Sequence[int], keeps: bool) -> list[Sequence[int]]:
    """The dimensions of each step that a reduction over some is: one after another where a step is over one alone, the
    last dimension first, as the first of the largest is then that of all. The channels follow the positions where none
    is kept, as rows have kernels for them."""
    if op in ("max", "min"):
        return [[dim] for dim in reversed(dims)]
    if dims[0] == 1 and len(dims) > 1 and not keeps and op not in ("var", "std"):
        return [dims[1:], dims[:1]]
    return [dims]
