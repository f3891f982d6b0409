"""Dropout of elements, and of samples (stochastic depth)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fusegen.chain.builder import ChainBuilder
from fusegen.ir.axes import Dim
from fusegen.ir.graph import Node
from fusegen.ops.scalars import scalar_text
from fusegen.ops.step import Step
from fusegen.spec.base import Plain, meaning
from fusegen.spec.names import AttributeName, Identifier

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), Plain("a number")]


class Drop(Step):
    """What is dropped is 0, the rest is x / (1 - p); the submodule `name` holds p and whether it is in training."""

    name: Annotated[AttributeName, meaning("the attribute of the module that holds p", "drop")]
    p: Annotated[Share | Identifier, meaning("the probability with which it is dropped", 0.1)] = 0.5
    matrix_only = "never"
    owns = ("p",)
    draws = True
    by_sample: ClassVar[bool]

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        return chain.dropout(self.name, self.p, x, self.by_sample)

    def construct_own(self, channels: Dim) -> list[str]:
        return [f"self.{self.name} = {self.module}({scalar_text(self.p, '')})"]

    def reset(self) -> list[str]:
        return []

    def eager(self, x: str) -> str:
        return f"self.{self.name}({x})"

    def not_over_positions(self) -> None:
        return None


class Dropout(Drop):
    """nn.Dropout: each element is dropped by itself."""

    op: Literal["dropout"]
    name: Annotated[AttributeName, meaning("the attribute of the module that holds the nn.Dropout", "drop")] = "dropout"
    formula = "0 with probability p, else x / (1 - p), by element; x in evaluation"
    module = "nn.Dropout"
    needs_elements = True
    by_sample = False


class DropPath(Drop):
    """Stochastic depth: all of a sample, an index of the first dimension, is dropped or kept, as by
    torchvision.ops.StochasticDepth with mode "row"."""

    op: Literal["drop_path"]
    name: Annotated[AttributeName, meaning("the attribute of the module that holds p", "path")] = "drop_path"
    formula = "0 with probability p, else x / (1 - p), by sample; x in evaluation"
    module = "_support.DropPath"
    by_sample = True


STEPS = (Dropout, DropPath)
