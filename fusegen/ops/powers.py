"""Powers, roots, logarithms and signs of the running value, by the names that torch has for them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from fusegen.ir.graph import Node
from fusegen.ops.scalars import Number
from fusegen.ops.step import Step
from fusegen.spec.base import Plain, meaning


class Power(Step):
    """A function of the running value and nothing else. function: its name in the graph."""

    op: str
    function: ClassVar[str]
    matrix_only = "never"

    def build(self, chain, x: Node) -> Node:
        return chain.graph.add(self.function, x, name=f"{self.op}_value")

    def eager(self, x: str) -> str:
        return f"torch.{self.op}({x})"


class Abs(Power):
    op: Literal["abs"]
    function = "absolute"
    formula = "|x|"
    kinks = (0,)


class Neg(Power):
    op: Literal["neg"]
    function = "negate"
    formula = "-x"


class Exp(Power):
    op: Literal["exp"]
    function = "exp"
    formula = "exp(x)"
    autocast = "float32"


class Log(Power):
    """-infinity at 0, NaN below."""

    op: Literal["log"]
    function = "log"
    formula = "log(x), to the base e"
    kinks = (0,)
    autocast = "float32"


class Sqrt(Power):
    """NaN below 0; the gradient is infinite at 0."""

    op: Literal["sqrt"]
    function = "sqrt"
    formula = "sqrt(x)"
    kinks = (0,)


class Rsqrt(Power):
    """Infinite at 0, NaN below."""

    op: Literal["rsqrt"]
    function = "rsqrt"
    formula = "1 / sqrt(x)"
    kinks = (0,)
    autocast = "float32"


class Reciprocal(Power):
    """Infinite at 0."""

    op: Literal["reciprocal"]
    function = "reciprocal"
    formula = "1 / x"
    kinks = (0,)
    autocast = "float32"


class Square(Power):
    op: Literal["square"]
    function = "square"
    formula = "x^2"
    autocast = "float32"  # it is pow(x, 2)


class Pow(Step):
    """NaN for a negative x, if the exponent is not whole. The gradient needs the exponent less 1, which kernels would
    round once more: so it is a number, not an argument."""

    op: Literal["pow"]
    exponent: Annotated[Number, Plain("a number that stands in the spec"), meaning("any number but an argument", 1.5)]
    formula = "x^exponent"
    kinks = (0,)
    autocast = "float32"
    matrix_only = "never"

    def build(self, chain, x: Node) -> Node:
        exponents = chain.graph.literal(self.exponent), chain.graph.literal(self.exponent - 1)
        return chain.graph.add("real_power", x, *exponents, name="pow_value")

    def eager(self, x: str) -> str:
        return f"torch.pow({x}, {float(self.exponent)!r})"

    def converted(self) -> list[float | str]:
        return [self.exponent]


STEPS = (Abs, Neg, Exp, Log, Sqrt, Rsqrt, Reciprocal, Square, Pow)
