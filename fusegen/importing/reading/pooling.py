"""The pooling of a trace: a layer with its options as they are written, or a function."""

from __future__ import annotations

from typing import Any

from torch import fx

from fusegen.aten import table as aten
from fusegen.aten.nodes import known, shape
from fusegen.importing.reading.parts import Parts
from fusegen.importing.reading.values import CHANNELS, MADE, Number, Value
from fusegen.importing.traces.convolution_runs import dimensions_of
from fusegen.importing.traces.source_locations import refusal

_FORM = "pooling takes [batch, channels, positions], or the features of [rows, features]"
_SIZES = ("kernel_size", "stride", "padding", "dilation", "output_size")


class Pools(Parts):
    """Reads max_pool2d, avg_pool2d, adaptive_avg_pool2d and so on."""

    def _pooled(self, node: fx.Node, op: str) -> Value:
        x = self._operand(node, 0)
        of_rows = op[-2] == "1" and x.layout[-1:] == (CHANNELS,) and "0" in x.layout
        if not of_rows and (not self._is_image(x.layout) or len(x.layout) != int(op[-2]) + 2):
            raise refusal("FG707", f"{op} of a value that lies otherwise", self.trace.place(node), _FORM)
        path = self.trace.path(node)
        part: Any = self.owners.part(path)
        is_layer = bool(path) and dimensions_of(part) == int(op[-2])
        arguments = node.target._schema.arguments[1:]  # type: ignore[union-attr]
        keys: dict[str, Any] = {}
        for index, (key, argument) in enumerate(zip(aten.POOLING[op], arguments, strict=False), 1):
            given = self._argument(node, index, argument.name)
            given = argument.default_value if given is None else given
            if key not in _SIZES:
                keys |= {} if given is None or given == argument.default_value else {key: given}
            elif given is None or any(not isinstance(each, int) for each in _entries(given)):
                raise refusal("FG703", f"{op} with a size that changes", self.trace.place(node), _FORM)
            elif given:
                keys[key] = self._written(path if is_layer else "", part, key, given)
        if keys.get("stride") == keys.get("kernel_size"):
            keys.pop("stride", None)
        keys = {key: value for key, value in keys.items() if not _is_default(key, value)}
        keys |= {MADE: known(shape(node)[-1])} if of_rows else {}
        return self._make(node, op, (x,), keys, path if is_layer else "", layout=x.layout)

    def _written(self, path: str, part: Any, key: str, given: Any) -> Any:
        """An option as it is written: one number where it is the same in all dimensions of positions.

        path: of the layer that has the option; empty for a function.
        """
        several = isinstance(getattr(part, key, None), tuple)
        found = []
        for at, each in enumerate(_entries(given)):
            fact = f"{key}[{at}]" if several else key
            found.append(Number(each, self.arguments.option(path, fact) if path else None))
        return found[0] if len(set(found)) == 1 else tuple(found)


def _entries(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _is_default(key: str, value: Any) -> bool:
    return (key, value) in (("padding", Number(0)), ("dilation", Number(1)))
