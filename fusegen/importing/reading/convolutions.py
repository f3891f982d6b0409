"""The convolution of a trace: the layer that it is, with its options as they are written."""

from __future__ import annotations

from typing import Any

from torch import fx
from torch.nn.modules.conv import _ConvNd

from fusegen.aten import table as aten
from fusegen.importing.reading.parts import Parts
from fusegen.importing.reading.shapes import first_layout
from fusegen.importing.reading.values import CHANNELS, Number, Value
from fusegen.importing.traces.source_locations import refusal

_OPTIONS = ("stride", "padding", "output_padding", "dilation", "groups")
_FORM = "a convolution takes [batch, channels, positions]"


class Convolutions(Parts):
    """Reads conv1d, conv_transpose1d and so on, and what they put around their input."""

    def _convolution(self, node: fx.Node, op: str) -> Value:
        x = self._operand(node, 0)
        kind = aten.CONVOLUTIONS[op][0]
        path = self.owners.owner(node, op)
        if path is None:
            message = f"{op} of tensors that no nn.{kind} holds"
            raise refusal("FG706", message, self.trace.place(node), f"use an nn.{kind}, so that the state_dict stays")
        if not self._is_image(x.layout) or len(x.layout) != int(op[-2]) + 2:
            raise refusal("FG707", f"{op} of a value that lies otherwise", self.trace.place(node), _FORM)
        part: Any = self.trace.module.get_submodule(path)
        for key, value in _given(node).items():
            padded = key == "padding" and part.padding_mode != "zeros"
            if not padded and not _same(value, getattr(part, key, 0)):
                hint = "leave it to the layer, which has it as an attribute"
                raise refusal("FG703", f"{op} with another {key} than that of '{path}'", self.trace.place(node), hint)
        keys: dict[str, Any] = {"out_channels": CHANNELS, "bias": part.bias is not None}
        for key in ("kernel_size", "stride", "padding", "dilation"):
            keys[key] = self._entries(path, part, key)
        depthwise = self.arguments.is_depthwise(path)
        keys["groups"] = CHANNELS if depthwise else Number(part.groups, self.arguments.option(path, "groups"))
        if part.transposed:
            keys["output_padding"] = self._entries(path, part, "output_padding")
        else:
            keys["padding_mode"] = part.padding_mode
        layout = first_layout(len(x.layout), int(op[-2])) if None in x.layout else x.layout
        return self._make(node, op, (x,), keys, path, layout=layout)

    def _entries(self, path: str, part: Any, key: str) -> Any:
        """An option as it is written: one number where it is the same in all dimensions of positions."""
        value = getattr(part, key)
        if isinstance(value, str):
            return value
        found = tuple(Number(each, self.arguments.option(path, f"{key}[{at}]")) for at, each in enumerate(value))
        return found[0] if len(set(found)) == 1 else found

    def _is_padding(self, node: fx.Node, name: str) -> bool:
        """Whether the operator is how a convolution repeats or reflects the edges of its input."""
        part = self.owners.part(self.trace.path(node))
        return name == "pad" and isinstance(part, _ConvNd) and part.padding_mode != "zeros"

    def _padded(self, node: fx.Node) -> Value:
        x = self._operand(node, 0)
        return self.values.make(x.op, x.operands, x.keys, x.name, x.layout, x.place)


def _given(node: fx.Node) -> dict[str, Any]:
    """The options that the operator has, by their names."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    names = [each.name for each in arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    found = {each.name: given.get(each.name, each.default_value) for each in arguments}
    return {key: value for key, value in found.items() if key in _OPTIONS}


def _same(value: Any, own: Any) -> bool:
    """Whether an option is that of the layer: it may be one number for all dimensions."""
    if isinstance(value, str) or isinstance(own, str):
        return value == own
    values = [value] if isinstance(value, int) else list(value)
    owns = [own] if isinstance(own, int) else list(own)
    return values * (len(owns) // len(values) or 1) == owns * (len(values) // len(owns) or 1)
