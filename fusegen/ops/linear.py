"""The contraction that a chain may begin with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from fusegen.chain.builder import ChainBuilder
from fusegen.ir.axes import CHANNEL, Dim
from fusegen.ir.graph import Node
from fusegen.ops.step import Dtypes, Step
from fusegen.spec.arguments import Width
from fusegen.spec.base import meaning, problem
from fusegen.spec.names import AttributeName

_TF32 = "under 'ieee', PyTorch's own torch.backends.cuda.matmul.fp32_precision = 'tf32' does that"


def _precision(value: Any) -> Any:
    if value == "tf32":
        raise problem("FG205", "'precision' has no 'tf32'", _TF32)
    return value


# How the product of a float32 module is made; `ieee` is the default of every spec.
Precision = Annotated[Literal["ieee", "fp32_split", "bf16", "fp16"], BeforeValidator(_precision)]


class Linear(Step):
    """nn.Linear. The product is the vendor library's, or our own from tensor cores; each begins a region."""

    op: Literal["linear"]
    name: Annotated[AttributeName, meaning("the attribute of the module that holds the nn.Linear", "fc")]
    out_features: Annotated[Width, meaning("the channels of the result", "hidden")]
    bias: Annotated[bool, meaning("whether a bias is added", False)] = True
    precision: Annotated[
        Precision,
        meaning("how a float32 module multiplies; its constructor's `precision` has this default", "fp32_split"),
    ] = "ieee"
    formula = "x W^T + b"
    module = "nn.Linear"
    tensors = ("weight", "bias")
    owns = ("input", "product")
    matrix_only = "never"
    anchor = True

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        product = chain.contract(self, x)
        if not self.bias:
            return product
        bias = chain.owned_parameter(self.name, "bias", (chain.channels,), CHANNEL, in_product=True)
        return chain.graph.add("add", product, bias, name=self.name)

    def eager(self, x: str) -> str:
        return f"self.{self.name}({x})"

    @property
    def is_over_channels(self) -> bool:
        return True

    def construct_own(self, channels: Dim) -> list[str]:
        bias = "" if self.bias else ", bias=False"
        return [f"self.{self.name} = nn.Linear({channels}, {self.out_features}{bias}, **_factory)"]

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        return dtypes.activation


STEPS = (Linear,)
