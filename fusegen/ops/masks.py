"""Ops that take a further input of bool."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.ir.graph import Node
from fusegen.ops.scalars import Scalar, scalar_text
from fusegen.ops.step import Step
from fusegen.spec.base import meaning
from fusegen.spec.names import Identifier


class MaskedFill(Step):
    """torch.masked_fill. No gradient where the mask is true."""

    op: Literal["masked_fill"]
    mask: Annotated[Identifier, meaning("an input of bool", "padding")]
    constant: Annotated[Literal["-inf"] | Scalar, meaning("the result where the mask is true", -10000.0)]
    formula = "constant where mask is true, else x"
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        mask = chain.input(self.mask, "mask")
        is_infinite = self.constant == "-inf"
        constant = chain.graph.literal(-math.inf) if is_infinite else chain.scalar(self.constant, "constant")
        return chain.graph.add("masked_fill", x, mask, constant, name="filled")

    def eager(self, x: str) -> str:
        constant = 'float("-inf")' if self.constant == "-inf" else scalar_text(self.constant)
        return f"{x}.masked_fill({self.mask}, {constant})"

    def converted(self) -> list[float | str]:
        return [] if self.constant == "-inf" else [self.constant]


STEPS = (MaskedFill,)
