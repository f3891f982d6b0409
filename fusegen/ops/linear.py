"""The contraction that a chain may begin with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fusegen.ir.extent import Dim
from fusegen.ir.graph import Node
from fusegen.ops.step import Dtypes, Step
from fusegen.spec.names import Identifier


class Linear(Step):
    """nn.Linear, run by the vendor library; the rest of the chain is fused behind it."""

    op: Literal["linear"]
    name: Identifier
    out_features: Annotated[int, Field(ge=1)] | Identifier
    bias: bool = True

    def build(self, chain, x: Node) -> Node:
        return chain.contract(self)

    def eager(self, x: str) -> str:
        return f"self.{self.name}({x})"

    def construct(self, channels: Dim) -> list[str]:
        bias = "" if self.bias else ", bias=False"
        return [f"self.{self.name} = nn.Linear({channels}, {self.out_features}{bias})"]

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        return dtypes.named["activation"]


STEPS = (Linear,)
