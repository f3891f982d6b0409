"""The operators of a trace that compare values with numbers, and choose by that: relu and the like, spelled out."""

from __future__ import annotations

from typing import Any

from torch import fx

from fusegen.importing.reading.operands import Operands
from fusegen.importing.reading.pattern import match, parse
from fusegen.importing.reading.values import Number, Value
from fusegen.importing.traces.source_locations import refusal

COMPARISONS = ("gt", "ge", "lt", "le")
# Where a value is greater than 0 it stays, elsewhere it is one of these: gradients at 0 are PyTorch's of the op, too.
_NEGATIVE = {
    "leaky_relu": ("negative_slope * x",),
    "elu": ("alpha * (exp(x) - 1)", "alpha * expm1(x)", "exp(x) - 1", "expm1(x)"),
}
_HINT = "relu, leaky_relu, elu, threshold, hardshrink and clamp choose by element; other masks are inputs of bool"


class Choices(Operands):
    """Reads comparisons, and where and masked_fill by these."""

    def _compared(self, node: fx.Node, name: str) -> Value:
        """A comparison, which is no step: what chooses by the comparison is."""
        x, limit = self._operand(node, 0), self._either(node, 1)
        if not isinstance(limit, Number):
            raise self._no_choice(node)
        return self.values.make(name, (x, limit), layout=x.layout, place=self.trace.place(node))

    def _chosen(self, node: fx.Node, mask: Value, then: Value | Number, other: Value | Number) -> Value:
        """What is `then` where the mask is true, as an op that chooses."""
        x, limit = mask.operands
        if mask.op in ("lt", "le"):
            then, other = other, then
        is_more = mask.op in ("gt", "le")  # than the limit; otherwise also where both are equal
        assert isinstance(x, Value) and isinstance(limit, Number)
        found = _choice(x, limit, then, other, is_more)
        if found is None:
            raise self._no_choice(node)
        op, source, keys = found
        return self._make(node, op, (source,), keys, layout=source.layout)

    def _no_choice(self, node: fx.Node) -> Exception:
        return refusal("FG703", "a choice by values, as no op of a chain makes it", self.trace.place(node), _HINT)


Choice = tuple[str, Value, dict[str, Any]]
"""An op, the value that it is of, and its keys."""


def _choice(x: Value, limit: Number, then: Value | Number, other: Value | Number, is_more: bool) -> Choice | None:
    """What is `then` where x is more than the limit (or equal to the limit, if not is_more), and else the other."""
    if then is x and isinstance(other, Number):
        if not is_more:
            return ("clamp", x, {"min": limit}) if other == limit else None
        is_relu = limit == other == Number(0)
        return ("relu", x, {}) if is_relu else ("threshold", x, {"threshold": limit, "value": other})
    if other is x and isinstance(then, Number):
        return ("clamp", x, {"max": limit}) if is_more and then == limit else None
    if x.op == "abs" and then is x.operands[0] and other == Number(0) and is_more:
        return "hardshrink", x.values[0], {"lambd": limit}
    if then is not x or limit.value != 0 or not is_more or not isinstance(other, Value):
        return None
    for op, patterns in _NEGATIVE.items():
        for pattern in patterns:
            for bound in match(parse(pattern), other, {"x": x}, {}):
                return op, x, {name: each for name, each in bound.items() if name != "x"}
    return None
