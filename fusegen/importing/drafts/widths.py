"""How many channels each value of a chain has: which of these numbers are one, and the facts that say so.

A layer begins channels of its own. What an operator takes two values of has the channels of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from fusegen.aten.table import CONVOLUTIONS
from fusegen.importing.drafts.facts import facts_of_part
from fusegen.importing.reading.values import CHANNELS, MADE, Value, walk
from fusegen.importing.steps.chain import ARITHMETIC, MODELS, StepDraft
from fusegen.importing.traces.arguments import Arguments, own_tensors
from fusegen.importing.traces.source_locations import refusal


@dataclass(eq=False)
class Width:
    """Channels of values. facts: sizes of the module that are these. count, part: it has so many equal parts. owner: of
    the layer whose result they are. made: whether a step makes them of others, as no argument says. key: of that step,
    which says them, if it has one. wanted: what to call them where no argument does."""

    size: int
    facts: list[str] = field(default_factory=list)
    count: int = 1
    part: Width | None = None
    same: Width | None = None
    owner: str = ""
    made: bool = False
    key: str = ""
    wanted: str = "channels"

    @property
    def root(self) -> Width:
        found = self
        while found.same is not None:
            found = found.same
        return found


class Widths:
    """The widths of the values of a chain. inputs: the number of channels of each input, by name."""

    def __init__(
        self, module: nn.Module, drafts: Sequence[StepDraft], arguments: Arguments, inputs: dict[str, int]
    ) -> None:
        self.arguments = arguments
        self.tensors: dict[str, Any] = dict(own_tensors(module))
        self._parts = dict(module.named_modules())
        self._of: dict[int, Width] = {}
        self.inner: dict[str, Width] = {}  # of inputs that are multiplied by: their last dimension but one
        self.inputs = {name: Width(size) for name, size in inputs.items()}
        self._all: list[Width] = [*self.inputs.values()]
        for draft in drafts:
            self._add(draft)

    def of(self, value: Value) -> Width:
        """The width of an input, or of the result of a step."""
        return self._width(value).root

    def divided(self) -> Iterator[Width]:
        """The widths that are divided into equal parts."""
        return (each for each in self._all if each.part is not None)

    # Steps

    def _add(self, draft: StepDraft) -> None:
        value, source = draft.value, draft.source
        before = self._width(source)
        if value.op == "part":
            self._divide(before, len(draft.data["parts"]))
            return
        op = draft.data["op"]
        if before.root.made and not before.root.key and (MODELS[op].tensors or op == "matmul"):
            message = f"{op} of {before.root.size} channels, which follow from other sizes"
            hint = "a layer or norm has the channels of an input, or of the result of a layer"
            raise refusal("FG707", message, draft.place, hint)
        if op == "bmm":
            behind = self._product(draft, before)
        elif op in CONVOLUTIONS:
            behind = self._convolution(draft, before)
        elif op in ("linear", "matmul"):
            behind = self._layer(draft, before)
        elif MADE in value.keys:
            behind = Width(value.keys[MADE], made=True, key=MODELS[op].width_key)
            self._all.append(behind)
        elif MODELS[op].divides:
            behind = self._divide(before, 2)
        else:
            behind = before
            before.root.facts += facts_of_part(draft, self.tensors, self._parts)
            for each in value.values if op in (*ARITHMETIC, "masked_fill") else ():
                behind = self._operand(each, behind)
            if CHANNELS in value.layout and CHANNELS not in source.layout:
                behind = self._widened(source, behind)
        self._of[id(value)] = behind if CHANNELS in value.layout else Width(1)

    def _width(self, value: Value) -> Width:
        """Of a step's source or operand."""
        if value.op == "part":
            return self._divide(self._width(value.values[0]), value.keys["count"])
        if value.op == "input":
            return self.inputs[value.name].root
        return self._of[id(value)].root

    def _widened(self, source: Value, behind: Width) -> Width:
        """Of an outer sum: the channels of which a value has one for each row, if there are as many."""
        made = [each for each in walk(source) if id(each) in self._of and CHANNELS in each.layout]
        before = self._width(made[-1]) if made else next(iter(self.inputs.values())).root
        return self._merge(before.root, behind.root) if before.root.size == behind.root.size else behind

    def _operand(self, value: Value, running: Width) -> Width:
        """The width of a result with this operand."""
        if value.op == "parameter":
            tensor = self.tensors[value.name]
            varying = [dim for dim, size in enumerate(tensor.shape) if size != 1]
            if CHANNELS not in value.layout[: len(varying)]:
                return running
            dim = varying[value.layout.index(CHANNELS)]
            facts = [f"{value.name}[{dim}]"] if self.arguments.shape(value.name) is None else []
            return self._merge(running.root, Width(tensor.shape[dim], facts))
        if value.op == "detach" or (value.op not in ("input", "part") and id(value) not in self._of):
            (inner,) = value.values
            return self._operand(inner, running)
        if CHANNELS not in value.layout:
            return running
        return self._merge(running.root, self._width(value))

    def _merge(self, one: Width, other: Width) -> Width:
        if one is other or one.size != other.size:  # one channel of several broadcasts
            return max(one, other, key=lambda each: each.size)
        other.same = one
        one.facts += other.facts
        if one.part is not None and other.part is not None and one.count == other.count:
            self._merge(one.part.root, other.part.root)
        elif one.part is None:
            one.count, one.part = other.count, other.part
        return one

    def _divide(self, width: Width, count: int) -> Width:
        root = width.root
        if root.part is None:
            root.count, root.part = count, Width(root.size // count)
        return root.part.root

    def _layer(self, draft: StepDraft, before: Width) -> Width:
        data = draft.data
        if data["op"] == "linear":
            weight, bias, by_columns = f"{data['name']}.weight", f"{data['name']}.bias", False
        else:
            weight, bias, by_columns = data["parameter"], data.get("bias", ""), not data.get("transposed")
        inner, outer = (0, 1) if by_columns else (1, 0)
        if before.size == self.tensors[weight].shape[inner]:
            before.facts.append(f"{weight}[{inner}]")
        facts = [f"{weight}[{outer}]", *([f"{bias}[0]"] if bias in self.tensors else [])]
        made = Width(self.tensors[weight].shape[outer], facts, owner=data.get("name", ""))
        self._all.append(made)
        return made

    def _convolution(self, draft: StepDraft, before: Width) -> Width:
        """Of the result of a convolution: those of its weight follow from its channels and groups."""
        name = draft.data["name"]
        layer = self._parts[name]
        before.facts.append(f"{name}.in_channels")
        facts = [f"{name}.out_channels", *([f"{name}.bias[0]"] if layer.bias is not None else [])]
        made = Width(layer.out_channels, facts, owner=name)
        self._all.append(made)
        return made

    def _product(self, draft: StepDraft, before: Width) -> Width:
        """Of the product with another input, which has the channels of both."""
        other, name = self.inputs[draft.data["input"]], draft.data["input"]
        if not draft.data.get("transposed"):
            self.inner[name] = before
            return other.root
        self._merge(before, other.root)
        at = list(self.inputs).index(name)
        self.inner[name] = Width(self.arguments.shapes[at][-2], wanted="keys")
        self._all.append(self.inner[name])
        return self.inner[name]
