"""Ops that take a further input of bool."""

from __future__ import annotations

from typing import Annotated, Literal

from fusegen.ir.graph import Node
from fusegen.ops.scalars import Scalar, scalar_text
from fusegen.ops.step import Step
from fusegen.spec.base import meaning
from fusegen.spec.names import Identifier


class MaskedFill(Step):
    """torch.masked_fill. No gradient where the mask is true."""

    op: Literal["masked_fill"]
    mask: Annotated[Identifier, meaning("an input of bool", "padding")]
    constant: Annotated[Scalar, meaning("the result where the mask is true", -10000.0)]
    formula = "constant where mask is true, else x"
    matrix_only = "never"

    def build(self, chain, x: Node) -> Node:
        mask, constant = chain.input(self.mask, "mask"), chain.scalar(self.constant, "constant")
        return chain.graph.add("masked_fill", x, mask, constant, name="filled")

    def eager(self, x: str) -> str:
        return f"{x}.masked_fill({self.mask}, {scalar_text(self.constant)})"

    def converted(self) -> list[float | str]:
        return [self.constant]


STEPS = (MaskedFill,)
