"""The upsampling of a trace: a layer with its options as they are written, or a function."""

from __future__ import annotations

from typing import Any

from torch import fx

from fusegen.aten import table as aten
from fusegen.aten.nodes import known, shape
from fusegen.importing.reading.pooling import Pools
from fusegen.importing.reading.values import MADE, Value
from fusegen.importing.traces.source_locations import refusal

_FORM = "upsampling takes [batch, channels, positions]"
# By what PyTorch calls an argument, what a layer calls the option.
_KEYS = {"output_size": "size", "scale_factors": "scale_factor"}


class Upsamples(Pools):
    """Reads upsample_nearest2d, upsample_bilinear2d, pixel_shuffle and so on."""

    def _upsampled(self, node: fx.Node, name: str) -> Value:
        x = self._operand(node, 0)
        if not self._is_image(x.layout):
            raise refusal("FG707", f"{name} of a value that lies otherwise", self.trace.place(node), _FORM)
        op, mode = aten.UPSAMPLING[name]
        path = self.trace.path(node)
        part: Any = self.owners.part(path)
        path = path if type(part).__name__ in ("Upsample", "PixelShuffle", "PixelUnshuffle") else ""
        keys: dict[str, Any] = {}
        arguments = node.target._schema.arguments[1:]  # type: ignore[union-attr]
        for index, argument in enumerate(arguments, 1):
            given, key = self._argument(node, index, argument.name), _KEYS.get(argument.name, argument.name)
            if given is None or (key == "align_corners" and not given):
                continue
            if any(
                not isinstance(each, int | float) for each in (given if isinstance(given, list | tuple) else [given])
            ):
                raise refusal("FG703", f"{op} with a size that changes", self.trace.place(node), _FORM)
            keys[key] = given if key == "align_corners" else self._option(path, part, key, given)
        if op == "upsample":
            keys["mode"] = mode
        else:
            keys[MADE] = known(shape(node)[1])
        return self._make(node, op, (x,), keys, path, layout=x.layout)

    def _option(self, path: str, part: Any, key: str, given: Any) -> Any:
        """An option as it is written. Only an argument that is a whole number tells planning the positions."""
        found = self._written(path, part, key, given)
        entries = found if isinstance(found, tuple) else (found,)
        values = self.arguments.constructor.values if self.arguments.constructor else {}
        whole = all(each.argument is None or isinstance(values.get(each.argument), int) for each in entries)
        return found if whole else self._written("", part, key, given)
