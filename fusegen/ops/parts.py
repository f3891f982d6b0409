"""What divides the channels into equal parts: chunk, and the gated linear units made of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fusegen.chain.builder import ChainBuilder
from fusegen.ir.graph import Node
from fusegen.ops.activations import Gelu, Relu, Sigmoid, Silu
from fusegen.ops.step import Step
from fusegen.spec.base import Given, Listing, meaning
from fusegen.spec.names import Identifier

MAX_PARTS = 8
_HALVES = "the halves a and b of the channels"


class Dividing(Step):
    """Only where the chain begins, or behind the layer that it begins with: the parts are read where they are in
    memory."""

    divides = True
    matrix_only = "never"


class Chunk(Dividing):
    """torch.chunk over the channels. Every part is saved by its name."""

    op: Literal["chunk"]
    parts: Annotated[
        Listing[Identifier],
        Field(min_length=2, max_length=MAX_PARTS),
        meaning("a name for each part, in order; later steps take them as a `value`", ["a", "gate"]),
    ]
    running: Annotated[Given[Identifier], meaning("the part that the next step takes; else the first", "gate")] = None
    formula = "the channels in equal parts"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        if self.save is not None:
            chain.refuse("FG307", "chunk saves its results by the names in 'parts'", "save")
        running = self.running_name
        if self.running not in (None, running):
            chain.refuse("FG301", f"no part named '{self.running}'", "running")
        found = dict(zip(self.parts, chain.divide(x, len(self.parts)), strict=False))
        for index, name in enumerate(self.parts):
            if name in self.parts[:index]:
                chain.refuse("FG208", f"two parts are named '{name}'", ("parts", index))
            else:
                chain.remember_part(name, found[name], ("parts", index))
        return found[running]

    @property
    def saved(self) -> tuple[str, ...]:
        return self.parts

    @property
    def running_name(self) -> str:
        return self.running if self.running in self.parts else self.parts[0]

    @property
    def number_of_parts(self) -> int:
        return len(self.parts)

    def lines(self, x: str, local: str, spatial: int) -> tuple[list[str], str]:
        made = f"{', '.join(self.parts)} = {x}.chunk({len(self.parts)}, dim={1 if spatial else -1})"
        return [made], self.running_name


class GatedLinearUnit(Dividing):
    """F.glu, and the same with another function of the gate."""

    op: Literal["glu", "swiglu", "reglu"]
    gate: Annotated[Literal["first", "last"], meaning("the half that is the gate b", "first")] = "last"
    formula = f"a f(b), of {_HALVES}"

    @classmethod
    def formula_of(cls, op: str) -> str:
        return {
            "glu": f"a sigmoid(b), of {_HALVES}",
            "swiglu": f"a silu(b), of {_HALVES}",
            "reglu": f"a relu(b), of {_HALVES}",
        }[op]

    @property
    def number_of_parts(self) -> int:
        return 2

    @property
    def function(self) -> Step:
        """What is applied to the gate."""
        return {"glu": Sigmoid(op="sigmoid"), "swiglu": Silu(op="silu"), "reglu": Relu(op="relu")}[self.op]

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        first, last = chain.divide(x, 2)
        value, gate = (first, last) if self.gate == "last" else (last, first)
        return chain.graph.add("mul", value, self.function.build(chain, gate), name=f"{self.op}_value")

    def eager(self, x: str) -> str:
        return f"F.glu({x}, dim=-1)"

    def lines(self, x: str, local: str, spatial: int) -> tuple[list[str], str]:
        result, dim = self.save or local, 1 if spatial else -1
        if self.op == "glu" and self.gate == "last":
            return [f"{result} = F.glu({x}, dim={dim})"], result
        names = "_value, _gate" if self.gate == "last" else "_gate, _value"
        made = f"{names} = {x}.chunk(2, dim={dim})"
        return [made, f"{result} = _value * {self.function.eager('_gate')}"], result


class Geglu(GatedLinearUnit):
    op: Literal["geglu"]  # type: ignore[assignment]
    approximate: Annotated[Literal["none", "tanh"], meaning("as that of gelu", "tanh")] = "none"
    formula = f"a gelu(b), of {_HALVES}"

    @classmethod
    def formula_of(cls, op: str) -> str:
        return cls.formula

    @property
    def function(self) -> Step:
        return Gelu(op="gelu", approximate=self.approximate)


STEPS = (Chunk, GatedLinearUnit, Geglu)
