"""The products of a trace with a parameter of the module."""

from __future__ import annotations

from typing import Any

from torch import fx

from fusegen.aten.nodes import shape
from fusegen.importing.reading.operands import Operands
from fusegen.importing.reading.shapes import is_channels
from fusegen.importing.reading.values import Value
from fusegen.importing.traces.source_locations import refusal

OF_INPUTS = "a chain may begin with one of two inputs, [batch, rows, features] each: import the part behind it"


class Products(Operands):
    """Reads matmul, bmm, and linear with tensors that no layer holds."""

    def _is_exchanged(self, node: fx.Node) -> bool:
        """Whether a parameter that is a matrix has its dimensions exchanged."""
        source = self._found.get(self._node(node, 0))
        is_matrix = isinstance(source, Value) and source.op == "parameter" and len(shape(self._node(node, 0))) == 2
        return is_matrix and shape(node) == shape(self._node(node, 0))[::-1] and self._exchanges(node)

    def _is_input_exchanged(self, node: fx.Node) -> bool:
        """Whether an input of three dimensions has its last two exchanged."""
        source = self._node(node, 0)
        found, sizes = self._found.get(source), shape(source)
        if not isinstance(found, Value) or found.op != "input" or len(sizes) != 3:
            return False
        return [str(size) for size in shape(node)] == [str(sizes[at]) for at in (0, 2, 1)]

    def _is_of_an_input(self, node: fx.Node) -> bool:
        found = self._found.get(self._node(node, 0))
        return isinstance(found, Value) and found.op == "input" and len(shape(node)) > 2

    @staticmethod
    def _exchanges(node: fx.Node) -> bool:
        dims: Any = node.args[1:]
        if dims and isinstance(dims[0], list | tuple):  # an order, not a pair
            return [each % 2 for each in dims[0]] == [1, 0]
        return not dims or sorted(each % 2 for each in dims) == [0, 1]

    def _product(self, node: fx.Node, name: str) -> Value:
        """With a parameter of the module itself, as it is or with its dimensions exchanged."""
        x, right = self._operand(node, 0), self._operand(node, 1)
        transposed = right.op == "transpose"
        weight = right.values[0] if transposed else right
        if weight.op == "input" and x.op == "input" and x is not weight and len(shape(node)) == 3 == self._rank:
            keys = {"input": weight.name, **({"transposed": True} if transposed else {})}
            return self._make(node, "bmm", (x, weight), keys, layout=self._layout)
        if weight.op != "parameter" and x.op != "parameter":
            raise refusal("FG707", "a product of two values", self.trace.place(node), OF_INPUTS)
        if weight.op != "parameter" or len(weight.layout) != 2 or x.op == "parameter":
            raise self._lacking(node, name)
        return self._multiplied(node, x, (weight,), transposed)

    def _multiplied(self, node: fx.Node, x: Value, tensors: tuple[Value, ...], transposed: bool) -> Value:
        if not is_channels(x.layout, -1):
            hint = "a chain multiplies the channels, the last dimension"
            raise refusal("FG707", "a product over other dimensions than the channels", self.trace.place(node), hint)
        keys: dict[str, Any] = {"parameter": tensors[0].name, **({"transposed": True} if transposed else {})}
        if len(tensors) > 1:
            keys["bias"] = tensors[1].name
        return self._make(node, "matmul", (x, *tensors), keys, layout=x.layout)
