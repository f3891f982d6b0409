"""Element-wise ops of one operand."""

from __future__ import annotations

from typing import Literal

from fusegen.ir.graph import Node
from fusegen.ops.scalars import Scalar, scalar_text
from fusegen.ops.step import Dtypes, Step, StepError
from fusegen.spec.base import Given


class Activation(Step):
    """A function of the running value and nothing else; `op` is also the function's name in the graph."""

    op: str

    def build(self, chain, x: Node) -> Node:
        return chain.graph.add(self.op, x, name=f"{self.op}_value")

    def eager(self, x: str) -> str:
        return f"F.{self.op}({x})"


class Relu(Activation):
    op: Literal["relu"]


class Hardswish(Activation):
    op: Literal["hardswish"]


class Sigmoid(Activation):
    op: Literal["sigmoid"]

    def eager(self, x: str) -> str:
        return f"torch.sigmoid({x})"


class Tanh(Activation):
    op: Literal["tanh"]

    def eager(self, x: str) -> str:
        return f"torch.tanh({x})"


class Exp(Activation):
    op: Literal["exp"]

    def eager(self, x: str) -> str:
        return f"torch.exp({x})"

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        return "float32" if dtypes.autocast else running


class Square(Activation):
    op: Literal["square"]

    def eager(self, x: str) -> str:
        return f"torch.square({x})"

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        # square is pow(x, 2), which autocast runs in float32.
        return "float32" if dtypes.autocast else running


class Silu(Activation):
    op: Literal["silu", "swish"]

    def build(self, chain, x: Node) -> Node:
        # A value of its own, as in the classes below: the gradient needs it too, and it costs most of the function.
        gate = chain.graph.add("sigmoid", x, name="gate")
        return chain.graph.add("silu", x, gate, name=f"{self.op}_value")

    def eager(self, x: str) -> str:
        return f"F.silu({x})"


class Mish(Activation):
    op: Literal["mish"]

    def build(self, chain, x: Node) -> Node:
        power = chain.graph.add("bounded_exp", x, name="power")
        return chain.graph.add("mish", x, power, name="mish_value")


class Gelu(Activation):
    op: Literal["gelu"]
    approximate: Literal["none", "tanh"] = "none"

    def build(self, chain, x: Node) -> Node:
        if self.approximate == "tanh":
            return chain.graph.add("gelu_tanh", x, name="gelu_value")
        cdf = chain.graph.add("normal_cdf", x, name="cdf")
        return chain.graph.add("gelu", x, cdf, name="gelu_value")

    def eager(self, x: str) -> str:
        return f"F.gelu({x})" if self.approximate == "none" else f'F.gelu({x}, approximate="tanh")'


class LeakyRelu(Step):
    op: Literal["leaky_relu"]
    negative_slope: Scalar = 0.01

    def build(self, chain, x: Node) -> Node:
        slope = chain.scalar(self.negative_slope, "negative_slope")
        return chain.graph.add("leaky_relu", x, slope, name="leaky_relu_value")

    def eager(self, x: str) -> str:
        return f"F.leaky_relu({x}, {scalar_text(self.negative_slope)})"

    def converted(self) -> list[float | str]:
        return [self.negative_slope]


class Softplus(Step):
    op: Literal["softplus"]
    beta: Scalar = 1.0
    threshold: Scalar = 20.0

    def build(self, chain, x: Node) -> Node:
        beta, threshold = chain.scalar(self.beta, "beta"), chain.scalar(self.threshold, "threshold")
        return chain.graph.add("softplus", x, beta, threshold, name="softplus_value")

    def eager(self, x: str) -> str:
        return f"F.softplus({x}, {scalar_text(self.beta)}, {scalar_text(self.threshold)})"

    def converted(self) -> list[float | str]:
        return [self.beta, self.threshold]

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        return "float32" if dtypes.autocast else running


class Clamp(Step):
    """Passes the gradient at both bounds."""

    op: Literal["clamp"]
    min: Given[Scalar] = None
    max: Given[Scalar] = None

    def build(self, chain, x: Node) -> Node:
        if self.min is None and self.max is None:
            raise StepError("FG307", "clamp needs min, max or both")
        if self.max is None:
            return chain.graph.add("clamp_min", x, chain.scalar(self.min, "min"), name="clamped")
        if self.min is None:
            return chain.graph.add("clamp_max", x, chain.scalar(self.max, "max"), name="clamped")
        bounds = chain.scalar(self.min, "min"), chain.scalar(self.max, "max")
        return chain.graph.add("clamp", x, *bounds, name="clamped")

    def eager(self, x: str) -> str:
        bounds = [
            f"{key}={scalar_text(value)}" for key, value in (("min", self.min), ("max", self.max)) if value is not None
        ]
        return f"torch.clamp({x}, {', '.join(bounds)})"

    def converted(self) -> list[float | str]:
        return [bound for bound in (self.min, self.max) if bound is not None]


class Hardtanh(Step):
    """As clamp, but passes no gradient at the bounds."""

    op: Literal["hardtanh"]
    min_val: Scalar = -1.0
    max_val: Scalar = 1.0

    def build(self, chain, x: Node) -> Node:
        if not isinstance(self.min_val, str) and not isinstance(self.max_val, str) and self.min_val > self.max_val:
            raise StepError("FG205", f"min_val {self.min_val} is above max_val {self.max_val}", "min_val")
        bounds = chain.scalar(self.min_val, "min_val"), chain.scalar(self.max_val, "max_val")
        return chain.graph.add("hardtanh", x, *bounds, name="hardtanh_value")

    def eager(self, x: str) -> str:
        return f"F.hardtanh({x}, {scalar_text(self.min_val)}, {scalar_text(self.max_val)})"

    def refused(self, owner: str, training: bool) -> list[str]:
        if not isinstance(self.min_val, str) and not isinstance(self.max_val, str):
            return []  # `build` has looked
        return [f"{scalar_text(self.min_val)} > {scalar_text(self.max_val)}"]

    def converted(self) -> list[float | str]:
        return [self.min_val, self.max_val]


STEPS = (Relu, Mish, Hardswish, Sigmoid, Tanh, Exp, Square, Silu, Gelu, LeakyRelu, Softplus, Clamp, Hardtanh)
