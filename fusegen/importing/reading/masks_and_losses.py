"""The operators of a trace that take masks, and the numbers of channels."""

from __future__ import annotations

import math

from torch import fx

from fusegen.importing.reading.choices import COMPARISONS, Choices
from fusegen.importing.reading.shapes import broadcast
from fusegen.importing.reading.values import CHANNELS, ROWS, Number, Value
from fusegen.importing.traces.source_locations import refusal

_REDUCTIONS = ("none", "mean", "sum")
FLATTEN = "the loss of a chain takes [rows, channels] and [rows]: flatten both in front of the loss"
_LINEAR_LOSS = "linear_cross_entropy"  # of torch.nn.functional, in newer versions
_BY_ELEMENT = "with reduction='none' it is a value of each element, which a reduction of the channels may follow"
_MASK = "a mask is an input of bool as it is: give it inverted, or made, to forward"


class MasksAndLosses(Choices):
    """Reads masked_fill, where, cross_entropy, and losses of each element."""

    def _masked(self, node: fx.Node, full: str, name: str) -> Value:
        """A number where a mask is true."""
        x, mask, number = (0, 1, 2) if name == "masked_fill" else (2, 0, 1)
        by = self._either(node, mask)
        if isinstance(by, Value) and by.op in COMPARISONS:
            return self._chosen(node, by, self._either(node, number), self._either(node, x))
        found, chosen = self._operand(node, x), self._found_mask(node, mask)
        value = node.args[number]
        constant = self._found.get(value) if isinstance(value, fx.Node) else value
        if isinstance(constant, bool) or not isinstance(constant, int | float | Number):
            hint = "where a mask is true, a chain has a number"
            raise refusal("FG703", f"{name} with a tensor", self.trace.place(node), hint)
        layout = broadcast(found.layout, chosen.layout)
        if layout is None or CHANNELS not in found.layout:
            raise refusal("FG707", f"{name} of values that lie differently", self.trace.place(node))
        keys = {"mask": chosen.name, "constant": self._constant(node, number, constant)}
        return self._make(node, "masked_fill", (found, chosen), keys, layout=layout)

    def _constant(self, node: fx.Node, index: int, constant: float | Number) -> Number | str:
        if isinstance(constant, Number):
            return constant
        return "-inf" if constant == -math.inf else self._number(node, index, "value", constant)

    def _found_mask(self, node: fx.Node, index: int) -> Value:
        given = node.args[index]
        found = self._found.get(given) if isinstance(given, fx.Node) else None
        if not isinstance(found, Value) or found.op != "input" or found.keys.get("kind") != "mask":
            raise refusal("FG703", "a mask that is computed", self.trace.place(node), _MASK)
        return found

    def _cross_entropy(self, node: fx.Node) -> Value:
        """With the numbers of channels as an input; in chunks where the module asks for a loss without logits."""
        x, target = self._operand(node, 0), self._operand(node, 1)
        where = self.trace.place(node)
        if target.op != "input" or target.keys.get("kind") != "target":
            hint = "its target is an input of int64, the number of a channel for each row"
            raise refusal("FG703", "cross_entropy with another target", where, hint)
        weights = self._class_weights(node)
        flat = ((ROWS, CHANNELS), (ROWS,))  # of images no view makes these
        if (x.layout, target.layout) not in ((("0", CHANNELS), ("0",)), flat):
            raise refusal("FG707", "cross_entropy of values and targets that lie differently", where, FLATTEN)
        reduction, ignored, smoothing = (self._argument(node, at, "") for at in (3, 4, 5))
        keys = {
            "target": target.name,
            "reduction": _REDUCTIONS[1 if reduction is None else reduction],
            "ignore_index": -100 if ignored is None else ignored,
            "label_smoothing": float(smoothing or 0.0),
        }
        if x.op == "linear" and _LINEAR_LOSS in str(node.meta.get("torch_fn")):
            keys["chunk"] = "auto"
        if weights is not None:
            keys["buffer"] = weights.name
        layout = target.layout if keys["reduction"] == "none" else ()
        taken = (x, target) if weights is None else (x, target, weights)
        return self._make(node, "cross_entropy", taken, keys, layout=layout)

    def _class_weights(self, node: fx.Node) -> Value | None:
        """A buffer of the module; None without weights of classes."""
        given = self._argument(node, 2, "weight")
        if given is None:
            return None
        found, leaf = self._found.get(given), self.trace.leaves.get(given)
        if leaf is None or leaf.kind != "buffer" or not isinstance(found, Value):
            hint = "register them as a buffer of the module, or add 'weight' to the spec, an input [classes]"
            raise refusal("FG703", "cross_entropy with weights of classes", self.trace.place(node), hint)
        return found

    def _element_loss(self, node: fx.Node, name: str) -> Value:
        """A loss of each element, written out as PyTorch computes it. The Huber loss is m * (|d| - m / 2), where d is
        the difference, and m the lesser of |d| and the limit. The smooth L1 loss is that over the limit."""
        x, target = self._operand(node, 0), self._operand(node, 1)
        layout = broadcast(x.layout, target.layout)
        is_binary = name == "binary_cross_entropy_with_logits"
        reduction = self._argument(node, 4 if is_binary else 2, "reduction")
        weights = (self._argument(node, at, "") for at in (2, 3)) if is_binary else ()
        if reduction != 0 or layout is None or any(each is not None for each in weights):
            raise refusal("FG703", f"{name} that reduces, or has weights", self.trace.place(node), _BY_ELEMENT)

        def made(op: str, *operands: Value | Number, **keys: Number) -> Value:
            return self._make(node, op, operands, keys, layout=layout)

        if is_binary:
            logarithm = self._make(node, "logsigmoid", (x,), layout=x.layout)
            rest = self._make(node, "sub", (Number(1), target), layout=target.layout)
            return made("sub", made("mul", rest, x), logarithm)
        key = "delta" if name == "huber_loss" else "beta"
        limit = self._number(node, 3, key, 1.0 if len(node.args) < 4 else node.args[3])
        distance = made("abs", made("sub", x, target))
        if limit.value == 0:
            return distance
        least = made("clamp", distance, max=limit)
        found = made("mul", least, made("sub", distance, made("mul", least, Number(0.5))))
        return found if key == "delta" else made("div", found, limit)
