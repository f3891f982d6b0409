"""Activations, by the names that torch.nn.functional has for them."""

from __future__ import annotations

from typing import Annotated, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.ir.axes import CHANNEL, SCALAR, Dim
from fusegen.ir.graph import Node
from fusegen.ops.scalars import Number, Scalar, scalar_text
from fusegen.ops.step import Step
from fusegen.spec.arguments import Dimension
from fusegen.spec.base import meaning
from fusegen.spec.names import AttributeName

# Klambauer et al. 2017, section 2, to the digits that PyTorch has.
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


class Activation(Step):
    """A function of the running value and nothing else; `op` is also the function's name in the graph."""

    op: str
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        return chain.graph.add(self.op, x, name=f"{self.op}_value")

    def eager(self, x: str) -> str:
        return f"F.{self.op}({x})"


class Relu(Activation):
    op: Literal["relu"]
    formula = "max(x, 0)"
    kinks = (0,)


class Hardswish(Activation):
    op: Literal["hardswish"]
    formula = "x min(max(x + 3, 0), 6) / 6"
    kinks = (-3, 3)


class Hardsigmoid(Activation):
    op: Literal["hardsigmoid"]
    formula = "min(max(x + 3, 0), 6) / 6"
    kinks = (-3, 3)


class Softsign(Activation):
    op: Literal["softsign"]
    formula = "x / (1 + |x|)"


class Logsigmoid(Activation):
    op: Literal["logsigmoid"]
    formula = "min(x, 0) - log(1 + exp(-|x|))"


class Sigmoid(Activation):
    op: Literal["sigmoid"]
    formula = "1 / (1 + exp(-x))"

    def eager(self, x: str) -> str:
        return f"torch.sigmoid({x})"


class Tanh(Activation):
    op: Literal["tanh"]
    formula = "tanh(x)"

    def eager(self, x: str) -> str:
        return f"torch.tanh({x})"


class Silu(Activation):
    op: Literal["silu", "swish"]
    formula = "x sigmoid(x)"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        # A value of its own, as in the classes below: the gradient needs it too, and it costs most of the function.
        gate = chain.graph.add("sigmoid", x, name="gate")
        return chain.graph.add("silu", x, gate, name=f"{self.op}_value")

    def eager(self, x: str) -> str:
        return f"F.silu({x})"


class Mish(Activation):
    op: Literal["mish"]
    formula = "x tanh(log(1 + exp(x)))"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        power = chain.graph.add("bounded_exp", x, name="power")
        return chain.graph.add("mish", x, power, name="mish_value")


class Gelu(Activation):
    op: Literal["gelu"]
    approximate: Annotated[
        Literal["none", "tanh"], meaning("`tanh`: Phi(x) = (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2", "tanh")
    ] = "none"
    formula = "x Phi(x), with the normal distribution Phi"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        if self.approximate == "tanh":
            return chain.graph.add("gelu_tanh", x, name="gelu_value")
        cdf = chain.graph.add("normal_cdf", x, name="cdf")
        return chain.graph.add("gelu", x, cdf, name="gelu_value")

    def eager(self, x: str) -> str:
        return f"F.gelu({x})" if self.approximate == "none" else f'F.gelu({x}, approximate="tanh")'


class LeakyRelu(Step):
    op: Literal["leaky_relu"]
    negative_slope: Annotated[Scalar, meaning("the factor of values up to 0", 0.2)] = 0.01
    formula = "x above 0, else negative_slope x"
    kinks = (0,)
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        slope = chain.scalar(self.negative_slope, "negative_slope")
        return chain.graph.add("leaky_relu", x, slope, name="leaky_relu_value")

    def eager(self, x: str) -> str:
        return f"F.leaky_relu({x}, {scalar_text(self.negative_slope)})"

    def converted(self) -> list[float | str]:
        return [self.negative_slope]


class Prelu(Step):
    """nn.PReLU: the weight is learnt."""

    op: Literal["prelu"]
    name: Annotated[AttributeName, meaning("the attribute of the module that holds the nn.PReLU", "act")]
    num_parameters: Annotated[Dimension, meaning("the length of the weight: 1, or the channels", "hidden")] = 1
    init: Annotated[Number, meaning("what the weight begins with", 0.1)] = 0.25
    formula = "x above 0, else weight x"
    kinks = (0,)
    autocast = "16 bits"
    matrix_only = "with a weight for each channel"
    module = "nn.PReLU"
    tensors = ("weight",)

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        size = chain.symbols.size(self.num_parameters, "num_parameters")
        if size not in (1, chain.channels) and None not in (size, chain.channels):
            message = f"prelu has one weight, or one for each channel, of which there are {chain.channels}, not {size}"
            chain.refuse("FG304", message, "num_parameters")
        chain.symbols.constructed((size,), "num_parameters")
        axes = SCALAR if size == 1 else CHANNEL
        weight = chain.owned_parameter(self.name, "weight", (size,), axes)
        return chain.graph.add("prelu", x, weight, name=self.name)

    def needs_matrix(self) -> bool:
        return self.num_parameters != 1  # PyTorch's channels are dimension 1

    def not_over_positions(self) -> None:
        return None

    def construct_own(self, channels: Dim) -> list[str]:
        return [f"self.{self.name} = nn.PReLU({self.num_parameters}, init={scalar_text(self.init)}, **_factory)"]

    def eager(self, x: str) -> str:
        return f"self.{self.name}({x})"


class Elu(Step):
    op: Literal["elu"]
    alpha: Annotated[Scalar, meaning("minus the limit at -infinity", 0.5)] = 1.0
    formula = "x above 0, else alpha (exp(x) - 1)"
    kinks = (0,)
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        one = chain.graph.literal(1)
        return chain.graph.add("elu", x, one, chain.scalar(self.alpha, "alpha"), one, name="elu_value")

    def eager(self, x: str) -> str:
        return f"F.elu({x}, {scalar_text(self.alpha)})"

    def converted(self) -> list[float | str]:
        return [self.alpha]


class Celu(Step):
    op: Literal["celu"]
    alpha: Annotated[Scalar, meaning("minus the limit at -infinity; not 0", 0.5)] = 1.0
    formula = "x above 0, else alpha (exp(x / alpha) - 1)"
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        graph, alpha = chain.graph, chain.scalar(self.alpha, "alpha")
        return graph.add("elu", x, graph.literal(1), alpha, chain.inverse(alpha, "alpha"), name="celu_value")

    def eager(self, x: str) -> str:
        return f"F.celu({x}, {scalar_text(self.alpha)})"

    def refused(self, owner: str, training: bool) -> list[str]:
        # PyTorch converts 1 / alpha to a float as well.
        return [f"abs({scalar_text(self.alpha)}) <= 2.0**-128"] if isinstance(self.alpha, str) else []

    def converted(self) -> list[float | str]:
        return [self.alpha]


class Selu(Step):
    op: Literal["selu"]
    formula = f"{_SELU_SCALE:.8g} x above 0, else {_SELU_SCALE:.8g} * {_SELU_ALPHA:.8g} (exp(x) - 1)"
    kinks = (0,)
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        factors = [chain.graph.literal(value) for value in (_SELU_SCALE, _SELU_SCALE * _SELU_ALPHA, 1)]
        return chain.graph.add("elu", x, *factors, name="selu_value")

    def eager(self, x: str) -> str:
        return f"F.selu({x})"


class Softplus(Step):
    op: Literal["softplus"]
    beta: Annotated[Scalar, meaning("how sharp the bend at 0 is", 2.0)] = 1.0
    threshold: Annotated[Scalar, meaning("the result is x where beta x is above it", 30.0)] = 20.0
    formula = "log(1 + exp(beta x)) / beta"
    autocast = "float32"
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        beta, threshold = chain.scalar(self.beta, "beta"), chain.scalar(self.threshold, "threshold")
        return chain.graph.add("softplus", x, beta, threshold, name="softplus_value")

    def eager(self, x: str) -> str:
        return f"F.softplus({x}, {scalar_text(self.beta)}, {scalar_text(self.threshold)})"

    def converted(self) -> list[float | str]:
        return [self.beta, self.threshold]


STEPS = (
    *(Relu, LeakyRelu, Prelu, Elu, Selu, Celu, Gelu, Silu, Mish, Hardswish),
    *(Sigmoid, Hardsigmoid, Logsigmoid, Tanh, Softplus, Softsign),
)
