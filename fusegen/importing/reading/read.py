"""A trace as values: each operator by the tables, with its numbers, and its dimensions followed through views."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from fusegen.aten import table as aten
from fusegen.aten.nodes import shape
from fusegen.importing.reading.choices import COMPARISONS
from fusegen.importing.reading.convolutions import Convolutions
from fusegen.importing.reading.dropouts import Dropouts
from fusegen.importing.reading.masks_and_losses import MasksAndLosses
from fusegen.importing.reading.products import OF_INPUTS, Products
from fusegen.importing.reading.reductions import Reductions
from fusegen.importing.reading.results import Results
from fusegen.importing.reading.shapes import broadcast, widened
from fusegen.importing.reading.upsampling import Upsamples
from fusegen.importing.reading.values import Layout, Number, Value, walk
from fusegen.importing.traces.source_locations import refusal
from fusegen.importing.traces.trace import forward_of

# What PyTorch has for sizes that change, and for what is computed of them.
_SIZES = (int, torch.SymInt, torch.SymFloat, torch.SymBool)


class Reader(Convolutions, Upsamples, Products, Reductions, Dropouts, MasksAndLosses, Results):
    """Reads one trace. `values` may be shared with others, so that equal results are one object."""

    def results(self) -> list[Value]:
        """The values that the module returns."""
        leaves = sorted(self.trace.leaves.items(), key=lambda item: item[1].kind != "input")
        self._found |= {node: self._leaf(node, leaf) for node, leaf in leaves}
        for node in self.trace.nodes:
            self._found[node] = self._read_whole(node)
        found = [self._result(node) for node in self.trace.results]
        if not self.trace.is_for_all:
            hint = "views of a chain are right for any number of rows"
            raise refusal(
                "FG705", "the module works for some sizes of its inputs alone", forward_of(self.trace.module), hint
            )
        return self._without_views(found)

    # Operators

    def _read_whole(self, node: fx.Node) -> Value | Number | None:
        """As `_read`, which knows calls as they are written by people: any other one is refused."""
        try:
            return self._read(node)
        except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError):
            name = aten.names(node.target)[1]
            hint = "write it as `fusegen ops` has it"
            raise refusal(
                "FG703", f"{name} is called in a way that imports do not know", self.trace.place(node), hint
            ) from None

    def _read(self, node: fx.Node) -> Value | Number | None:
        if node.op == "get_attr" or isinstance(node.meta.get("val"), _SIZES):
            return None  # a graph of its own, which the next node runs, or a size
        if node.target is operator.getitem:
            return self._item(node)
        full, name = aten.names(node.target)
        if name in aten.OF_SIZES:
            return None
        if aten.is_in_place(node.target):
            return self._in_place(node, full, name)
        return self._apply(node, full, name)

    def _apply(self, node: fx.Node, full: str, name: str) -> Value | Number | None:
        if name in aten.DROPOUTS:
            return self._dropped(node, name)
        if name in ("narrow", "slice") and self._is_narrowing(node):
            return self._narrowed(node, name)
        if name in aten.SAME_ELEMENTS:
            return self._view(node, name)
        if name in aten.CASTS:
            return self._cast(node)
        if name == "detach":
            found = self._either(node, 0)
            self._source[node] = self._node(node, 0)
            return found if isinstance(found, Number) else self._make(node, "detach", (found,), layout=found.layout)
        if name in aten.FILLED:
            return self._filled(node, aten.FILLED[name])
        if name in aten.EXCHANGES and self._is_exchanged(node):
            return self._make(node, "transpose", (self._operand(node, 0),), layout=())
        if name in aten.EXCHANGES and self._spatial:
            return self._permuted(node)
        if name in aten.EXCHANGES and self._is_input_exchanged(node):
            return self._make(node, "transpose", (self._operand(node, 0),), layout=())
        if name in aten.EXCHANGES and self._is_of_an_input(node):
            raise refusal("FG707", f"{name} of an input", self.trace.place(node), OF_INPUTS)
        if name in aten.PRODUCTS:
            return self._product(node, name)
        if name in aten.CONVOLUTIONS:
            return self._convolution(node, name)
        if name in aten.POOLING:
            return self._pooled(node, name)
        if name in aten.JOINED:
            return self._joined(node)
        if name in aten.UPSAMPLING:
            return self._upsampled(node, name)
        if self._is_padding(node, name):
            return self._padded(node)
        if name in aten.MODULES:
            return self._module(node, name)
        arithmetic = aten.find(aten.ARITHMETIC, node.target)
        if arithmetic is not None:
            return self._arithmetic(node, *arithmetic)
        over = aten.find(aten.OVER_CHANNELS, node.target)
        if over is not None:
            return self._over_channels(node, *over)
        parts = aten.find(aten.PARTS, node.target)
        if parts is not None:
            return self._parts(node, parts)
        if name in ("masked_fill", "where"):
            return self._masked(node, full, name)
        if name == "cross_entropy_loss":
            return self._cross_entropy(node)
        if name in COMPARISONS:
            return self._compared(node, name)
        if name in aten.ELEMENT_LOSSES:
            return self._element_loss(node, name)
        if name == "glu":
            return self._glu(node)
        if name in aten.EMPTY or name in aten.RANDOM:
            return self._drawn(node, name)
        function = aten.find(aten.FUNCTIONS, node.target)
        if function is not None:
            return self._function(node, function)
        raise self._lacking(node, "transpose" if name in aten.EXCHANGES else name)

    def _function(self, node: fx.Node, function: aten.Function) -> Value:
        if isinstance(node.args[0], int | float):
            message = f"{function.op} of the number {node.args[0]} and a value"
            raise refusal("FG703", message, self.trace.place(node), "`fusegen ops` lists what a chain has")
        x = self._operand(node, 0)
        keys: dict[str, Any] = {}
        for index, (key, default) in enumerate(function.keys.items(), 1):
            given = self._argument(node, index, key)
            known = self._found.get(given) if isinstance(given, fx.Node) else None
            if isinstance(known, Number):  # a tensor of one number
                keys[key] = known
                continue
            if isinstance(given, fx.Node):
                raise refusal(
                    "FG703", f"{key} of {function.op} is a tensor", self.trace.place(node), "a chain has numbers there"
                )
            if isinstance(default, str):
                keys[key] = given or default
            elif given is not None or default is not None:
                keys[key] = self._number(node, index, key, default if given is None else given)
        rest = node.target._schema.arguments[1 + len(function.keys) :]  # type: ignore[union-attr]
        for index, each in enumerate(rest, 1 + len(function.keys)):
            if self._argument(node, index, each.name) not in (None, each.default_value, *function.fixed):
                raise self._lacking(node, function.op)
        op = function.op
        if op == "pow":  # of which the kernels are made for one exponent
            keys["exponent"] = Number(keys["exponent"].value)
        if op == "pow" and keys["exponent"] == Number(2):
            op, keys = "square", {}
        if op == "hardtanh" and keys == {"min_val": Number(0), "max_val": Number(6)}:
            op, keys = "relu6", {}
        return self._make(node, op, (x,), keys, layout=x.layout)

    def _arithmetic(self, node: fx.Node, op: str, swapped: bool) -> Value:
        operands = [self._either(node, index) for index in (0, 1)]
        alpha = self._argument(node, 2, "alpha")
        if alpha not in (None, 1):
            factor = self._number(node, 2, "alpha", alpha)
            if isinstance(operands[1], Number):
                operands[1] = Number(operands[1].value * alpha)
            else:
                operands[1] = self._make(node, "mul", (operands[1], factor), layout=operands[1].layout)
        layouts = [each.layout for each in operands if isinstance(each, Value)]
        layout = layouts[0] if len(layouts) < 2 else broadcast(*layouts)
        if layout is None:
            hint = f"values of a chain are {self._form}, or have one channel"
            raise refusal("FG707", f"{op} of values that lie differently", self.trace.place(node), hint)
        layout = widened(layout) if self._rank == 2 else layout
        if len(layouts) < 2 and len(shape(node)) != len(layout):
            hint = "a number is of one element, or of the shape of the value that it meets"
            raise refusal("FG707", f"{op} with a tensor of one number", self.trace.place(node), hint)
        operands = [self._aligned(each, layout) for each in operands]
        return self._make(node, op, tuple(reversed(operands) if swapped else operands), layout=layout)

    def _aligned(self, operand: Value | Number, layout: Layout) -> Value | Number:
        """A parameter, or what is made of one and numbers, with what its dimensions run over where it is used."""
        if isinstance(operand, Number) or any(each.is_leaf and each.op != "parameter" for each in walk(operand)):
            return operand
        if operand.op != "parameter":
            parts = tuple(self._aligned(each, layout) for each in operand.operands)
            laid = next((each.layout for each in parts if isinstance(each, Value)), operand.layout)
            return self.values.make(operand.op, parts, operand.keys, operand.name, laid, operand.place)
        behind = layout[len(layout) - len(operand.layout) :]
        labels = tuple(None if own is None else each for own, each in zip(operand.layout, behind, strict=True))
        return self.values.make("parameter", name=operand.name, layout=labels)

    def _item(self, node: fx.Node) -> Value | None:
        """One of the results of an operator that has several: a part, or the values of max and min."""
        source, index = self._node(node, 0), self._argument(node, 1, "")
        if source in self._counts:
            return self._part(node, source, index)
        if source in self._unequal:
            return self._unequal_part(node, source, index)
        found = self._found[source]
        if index != 0 and node.users:
            raise refusal("FG703", f"the indices of {aten.names(source.target)[1]}", self.trace.place(node))
        return found if index == 0 and isinstance(found, Value) else None

    def _module(self, node: fx.Node, op: str) -> Value:
        x = self._operand(node, 0)
        if op == "linear" and self.owners.owner(node, op) is None:
            weight, *bias = (self._operand(node, i) for i in (1, 2) if self._argument(node, i, "") is not None)
            by_columns = weight.op == "transpose" and not bias
            tensors = (weight.values[0] if by_columns else weight, *bias)
            if all(each.op == "parameter" and "." not in each.name for each in tensors):
                return self._multiplied(node, x, tensors, transposed=not by_columns)
        name, keys, given = self.owners.step(node, op, x, self._layout, self.arguments)
        found = self._make(node, op, (x,), keys, name, layout=x.layout)
        for function, tensor in zip(("mul", "add"), given, strict=False):
            operand = self._found[tensor]
            if not isinstance(operand, Value):
                raise self._lacking(node, op)
            found = self._make(node, function, (found, self._aligned(operand, x.layout)), layout=x.layout)
        return found

    def _filled(self, node: fx.Node, filling: float) -> Number:
        """A tensor of one number. filling: which argument that is, or the number."""
        if isinstance(filling, float):
            return Number(filling)
        return self._number(node, filling, "", node.args[filling])

    # Casts, and changes in place

    def _cast(self, node: fx.Node) -> Value | Number:
        """What changes nothing, or what kernels do as well: they compute in float32."""
        found, source = self._either(node, 0), self._node(node, 0)
        before, after = (each.meta["val"].dtype for each in (source, node))
        is_mask = isinstance(found, Value) and found.keys.get("kind") == "mask"
        if isinstance(found, Value) and found.op in COMPARISONS:
            raise self._no_choice(node)
        if not isinstance(found, Number) and before != after and not ({before, after} <= self._dtypes or is_mask):
            raise self._lacking(node, "to")
        self._check_dtype(node)
        self._source[node] = source
        self._casts.add(node)
        return found

    def _in_place(self, node: fx.Node, full: str, name: str) -> Value | Number | None:
        target = self._node(node, 0)
        root = self._root(target)
        leaf = self.trace.leaves.get(root)
        if leaf is not None and leaf.kind == "buffer" and self.owners.counts_batches(leaf.name):
            return None
        if leaf is not None and name != "detach":
            hint = "call it on a new tensor, without the underscore"
            raise refusal(
                "FG704", f"{name}_ changes the {leaf.kind} '{leaf.name}' in place", self.trace.place(node), hint
            )
        if name != "detach" and self._is_cast(target):
            message = f"{name}_ changes a value in place that was cast, or was not"
            raise refusal("FG704", message, self.trace.place(node), "call it without the underscore")
        made = self._apply(node, full, name)
        self._source[node] = target
        for other in [each for each in self._found if self._root(each) is root]:
            same = shape(other) == shape(node)
            self._found[other] = made if same else None
        return made
