"""Products with a weight that is the module's own parameter, and of two inputs."""

from __future__ import annotations

from typing import Annotated, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.product import bias_of, multiply, multiply_batches
from fusegen.ir.axes import Dim
from fusegen.ir.graph import Node
from fusegen.ops import parameters
from fusegen.ops.linear import Precision
from fusegen.ops.step import Dtypes, Step
from fusegen.spec.arguments import InputShape
from fusegen.spec.base import Given, meaning
from fusegen.spec.names import AttributeName, Identifier


class Matmul(Step):
    """torch.matmul with a learnt weight; with `transposed` and `bias`, F.linear. It begins a region, as linear does."""

    op: Literal["matmul"]
    parameter: Annotated[AttributeName, meaning("the weight, an attribute of the module", "weight")]
    shape: Annotated[
        Identifier | InputShape,
        meaning(
            "the weight's: [in_features, out_features], the other way round if transposed, or a shape argument",
            ["features", "hidden"],
        ),
    ]
    init: Annotated[
        parameters.Init, meaning("what the weight begins with: a filling, a number or a float argument", "randn")
    ]
    transposed: Annotated[bool, meaning("the weight is [out_features, in_features], as that of F.linear", True)] = False
    bias: Annotated[
        Given[AttributeName], meaning("with transposed: a parameter that F.linear adds, [out_features]", "bias")
    ] = None
    bias_init: Annotated[Given[parameters.Init], meaning("what the bias begins with", "zeros")] = None
    precision: Annotated[Precision, meaning("as that of linear", "fp32_split")] = "ieee"
    formula = "x W, or x W^T + b"
    owns = ("input", "product")
    matrix_only = "never"
    anchor = True

    @property
    def name(self) -> str:
        """What its result belongs to, as that of a linear layer does."""
        return self.parameter

    @property
    def out_features(self) -> Dim | None:
        """The channels of the result; None where an argument of the module has the shape."""
        if isinstance(self.shape, str) or len(self.shape) != 2:
            return None
        return self.shape[0 if self.transposed else 1]

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        product = multiply(chain, self, x)
        if self.bias is None and self.bias_init is not None:
            chain.refuse("FG307", "bias_init goes with a bias", "bias_init")
        if self.bias is None or not self._has_its_keys(chain):
            return product
        return chain.graph.add("add", product, bias_of(chain, self), name=f"{self.parameter}_plus_{self.bias}")

    def _has_its_keys(self, chain: ChainBuilder) -> bool:
        """Whether a bias is one that F.linear adds, and begins with something."""
        if not self.transposed:
            hint = "PyTorch adds it afterwards: write an 'add' with a parameter as the next step"
            chain.refuse("FG307", "bias goes with transposed, where F.linear adds it", "bias", hint)
        elif self.bias_init is None:
            chain.refuse("FG202", f"parameter '{self.bias}' needs a bias_init", "bias")
        return self.transposed and self.bias_init is not None

    def eager(self, x: str) -> str:
        if not self.transposed:
            return f"torch.matmul({x}, self.{self.parameter})"
        bias = "" if self.bias is None else f", self.{self.bias}"
        return f"F.linear({x}, self.{self.parameter}{bias})"

    @property
    def is_over_channels(self) -> bool:
        return True

    def construct_own(self, channels: Dim) -> list[str]:
        lines = [parameters.made(self.parameter, self.shape, self.init)]
        if self.bias is not None and self.bias_init is not None:
            out = f"{self.shape}[0]" if isinstance(self.shape, str) else self.shape[0]
            lines.append(parameters.made(self.bias, [out], self.bias_init))
        return lines

    def reset(self) -> list[str]:
        lines = [parameters.drawn(self.parameter, self.init)]
        if self.bias is not None and self.bias_init is not None:
            lines.append(parameters.drawn(self.bias, self.bias_init))
        return lines

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        return dtypes.activation


class Bmm(Step):
    """torch.bmm, or torch.matmul with more dimensions: the first input times another one, for each element of the
    batch. PyTorch makes it. Only as the first step, and as the only layer."""

    op: Literal["bmm"]
    input: Annotated[Identifier, meaning("the other input, [batch, features, channels]", "keys")]
    transposed: Annotated[bool, meaning("the other input is [batch, channels, features]", True)] = False
    formula = "x times input"
    owns = ("result",)
    matrix_only = "never"
    anchor = True

    @property
    def name(self) -> str:
        """What its result belongs to."""
        return self.op

    @property
    def in_batches(self) -> bool:
        return True

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        return multiply_batches(chain, self, x)

    def eager(self, x: str) -> str:
        return f"torch.matmul({x}, {self.input}{'.mT' if self.transposed else ''})"

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        return dtypes.activation


STEPS = (Matmul, Bmm)
