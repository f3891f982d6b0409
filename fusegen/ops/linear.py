"""The contraction that a chain may begin with."""

from __future__ import annotations

from typing import ClassVar, Literal

from fusegen.ir.extent import CHANNEL, Dim
from fusegen.ir.graph import Node
from fusegen.ops.step import Dtypes, Step
from fusegen.spec.model import Dimension
from fusegen.spec.names import AttributeName


class Linear(Step):
    """nn.Linear: the product by the vendor library, the bias as `Parameter.in_product` says."""

    owns: ClassVar = ("input", "weight", "product", "bias")

    op: Literal["linear"]
    name: AttributeName
    out_features: Dimension
    bias: bool = True

    def build(self, chain, x: Node) -> Node:
        product = chain.contract(self, x)
        if not self.bias:
            return product
        bias = chain.owned_parameter(self.name, "bias", (chain.channels,), CHANNEL, in_product=True)
        return chain.graph.add("add", product, bias, name=self.name)

    def eager(self, x: str) -> str:
        return f"self.{self.name}({x})"

    def construct(self, channels: Dim) -> list[str]:
        bias = "" if self.bias else ", bias=False"
        return [f"self.{self.name} = nn.Linear({channels}, {self.out_features}{bias}, **_factory)"]

    def reset(self) -> list[str]:
        return [f"self.{self.name}.reset_parameters()"]

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        return dtypes.named["activation"]


STEPS = (Linear,)
