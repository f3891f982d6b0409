"""What a module drops in training: the dropouts of a trace, and stochastic depth as people spell it out."""

from __future__ import annotations

import math
from typing import Any

from torch import fx, nn

from fusegen.aten.nodes import shape
from fusegen.importing.reading.operands import Operands
from fusegen.importing.reading.pattern import Factors, products
from fusegen.importing.reading.shapes import first_layout
from fusegen.importing.reading.values import HIDDEN, Number, Value, Values, replaced
from fusegen.importing.traces.source_locations import refusal

_OPS = ("dropout", "drop_path")
_KEPT = 1e-12


class Dropouts(Operands):
    """Reads dropout, and what draws random numbers for each sample."""

    def _dropped(self, node: fx.Node, name: str) -> Value | Number:
        x, p = self._either(node, 0), self._argument(node, 1, "p")
        training = bool(self._argument(node, 2, "train"))
        number = self._share(node, p)
        if isinstance(x, Number) or not training or (p == 0 and not number.argument):
            self._source[node] = self._node(node, 0)
            return x
        if name != "dropout":
            raise self._lacking(node, name)
        if not self.trace.training:
            hint = "the chain's dropout follows the module's train() and eval()"
            raise refusal("FG709", "dropout in evaluation", self.trace.place(node), hint)
        path = self.trace.path(node)
        own = path if isinstance(self.owners.part(path), nn.Dropout) and path else ""
        keys = {"p": number, HIDDEN: node.name}
        return self._make(node, "dropout", (x,), keys, own, layout=x.layout)

    def _share(self, node: fx.Node, p: Any) -> Number:
        path = self.trace.path(node)
        part = self.owners.part(path)
        if isinstance(part, nn.Dropout) and path:
            return Number(p, self.arguments.of_attribute(path, "p"))
        return self._number(node, 1, "p", p)

    def _drawn(self, node: fx.Node, name: str) -> Value:
        """A tensor that is to be filled, or is filled with random numbers: one for each sample."""
        sizes = shape(node)
        labels = first_layout(self._rank, self._spatial)
        fits = len(sizes) == self._rank and str(sizes[0]) == str(self._first[0]) and all(s == 1 for s in sizes[1:])
        if not fits:
            raise refusal(
                "FG703", "random numbers of another shape than [batch, 1, ...]", self.trace.place(node), _BY_SAMPLE
            )
        layout = (labels[0], *[None] * (self._rank - 1))
        if name != "bernoulli":
            return self.values.make(name, (), {HIDDEN: node.name}, layout=layout, place=self.trace.place(node))
        p = self._argument(node, 1, "p")
        keep = self._number(node, 1, "p", 0.5 if p is None else p)
        keys = {
            "keep": keep,
            "p": Number(round(1 - keep.value, 15), self._link(node, 1 - keep.value)),
            HIDDEN: node.name,
        }
        return self.values.make("bernoulli", (), keys, layout=layout, place=self.trace.place(node))

    def _link(self, node: fx.Node, p: float) -> str | None:
        """The argument that a share is of which forward takes the rest."""
        path = self.trace.path(node)
        own = vars(self.owners.part(path) or self.trace.module)
        for name, value in own.items():
            if type(value) is float and math.isclose(value, p, rel_tol=_KEPT):
                return self.arguments.of_attribute(path, name)
        return None


_BY_SAMPLE = "a chain drops elements by nn.Dropout, and samples by one random number for each"


def drop_path(value: Value) -> tuple[str, tuple[Value | Number, ...], dict[str, Any]] | None:
    """The step that a value spells out: x times a number for each sample, 0 or 1, over the share that is kept."""
    ways = products(value) if value.op in ("mul", "div") else iter(())
    return next((found for factors in ways if (found := _drop_path(factors)) is not None), None)


def _drop_path(factors: Factors) -> tuple[str, tuple[Value | Number, ...], dict[str, Any]] | None:
    values = [each for each, sign in factors if isinstance(each, Value) and sign > 0]
    drawn = next((each for each in values if each.op == "bernoulli"), None)
    if drawn is None:
        return None
    rest = [(each, sign) for each, sign in factors if each is not drawn]
    xs = [each for each in values if each is not drawn]
    numbers = [(each, sign) for each, sign in rest if isinstance(each, Number)]
    keep = drawn.keys["keep"].value
    scale = math.prod(each.value**sign for each, sign in numbers) if all(e.value for e, _ in numbers) else 0.0
    if len(xs) != 1 or len(rest) != 1 + len(numbers) or not math.isclose(scale * keep, 1.0, rel_tol=1e-9):
        return None
    return "drop_path", (xs[0],), {"p": drawn.keys["p"], HIDDEN: drawn.keys[HIDDEN]}


def without_drops(results: list[Value], values: Values) -> list[Value]:
    """What a module computes that drops nothing."""

    def made(value: Value, operands: tuple[Value | Number, ...]) -> Value:
        return operands[0] if value.op in _OPS else values.again(value, operands)  # type: ignore[return-value]

    return replaced(results, made)
