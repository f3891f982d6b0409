"""The operators of a trace that reduce the channels, or normalise over them."""

from __future__ import annotations

from typing import Any

from torch import fx

from fusegen.aten import table as aten
from fusegen.aten.nodes import shape
from fusegen.importing.reading.operands import Operands
from fusegen.importing.reading.shapes import is_reducible, reduced
from fusegen.importing.reading.values import Number, Value
from fusegen.importing.traces.source_locations import refusal


class Reductions(Operands):
    """Reads softmax, sums, norms and the like."""

    def _over_channels(self, node: fx.Node, op: str, same: bool) -> Value:
        x = self._operand(node, 0)
        dims, sizes = aten.dimensions(node.target, node.args, node.kwargs) or [], shape(self._node(node, 0))
        if op == "mean" and self._is_of_positions(node, x, dims):
            op = f"adaptive_avg_pool{self._spatial}d"
            return self._make(node, op, (x,), {"output_size": Number(1)}, layout=self._layout)
        if len(dims) != 1 or not isinstance(dims[0], int) or not is_reducible(x.layout, dims[0], sizes):
            hint = f"a chain reduces over the channels, {'dimension 1' if self._spatial else 'the last dimension'}"
            raise refusal(
                "FG703", f"{op} over {'all' if dims == [None] else 'other'} dimensions", self.trace.place(node), hint
            )
        matrix = self._rank == 2 and len(x.layout) == 2
        keys: dict[str, Any] = {"dim": 1} if self._spatial or (dims[0] >= 0 and matrix) else {}
        if same:
            return self._make(node, op, (x,), keys, layout=x.layout)
        if op in ("var", "std"):
            keys["correction"] = self._correction(node, op)
        if op == "norm":
            keys["p"] = self._order(node)
        keep = bool(self._argument(node, 3 if op in ("var", "std", "norm") else 2, "keepdim"))
        return self._make(node, op, (x,), {"keepdim": True, **keys}, layout=reduced(x.layout, dims[0], keep))

    def _is_of_positions(self, node: fx.Node, x: Value, dims: list[Any]) -> bool:
        """Whether a mean is over all positions, and leaves one in their place."""
        rank = len(shape(self._node(node, 0)))
        found = {dim % rank for dim in dims if isinstance(dim, int)}
        keeps = bool(self._argument(node, 2, "keepdim"))
        return x.layout == self._layout and self._spatial > 0 and keeps and found == {*range(2, rank)}

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
