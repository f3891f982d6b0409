"""Powers, roots, exponentials and logarithms of the running value, by the names that torch has for them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.ir.graph import Node
from fusegen.ops.scalars import Number
from fusegen.ops.step import Step
from fusegen.spec.base import Plain, meaning


class Unary(Step):
    """A function of the running value and nothing else. function: its name in the graph, where that is not the op's."""

    op: str
    function: ClassVar[str] = ""
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        return chain.graph.add(self.function or self.op, x, name=f"{self.op}_value")

    def eager(self, x: str) -> str:
        return f"torch.{self.op}({x})"


class Abs(Unary):
    op: Literal["abs"]
    function = "absolute"
    formula = "|x|"
    kinks = (0,)


class Neg(Unary):
    op: Literal["neg"]
    function = "negate"
    formula = "-x"


class Exp(Unary):
    op: Literal["exp"]
    formula = "exp(x)"
    autocast = "float32"


class Exp2(Unary):
    op: Literal["exp2"]
    formula = "2^x"


class Expm1(Unary):
    """To its own digits where x is small, too."""

    op: Literal["expm1"]
    formula = "exp(x) - 1"
    autocast = "float32"


class Log(Unary):
    """-infinity at 0, NaN below."""

    op: Literal["log"]
    formula = "log(x), to the base e"
    kinks = (0,)
    autocast = "float32"


class Log2(Unary):
    """-infinity at 0, NaN below."""

    op: Literal["log2"]
    formula = "log(x), to the base 2"
    kinks = (0,)
    autocast = "float32"


class Log10(Unary):
    """-infinity at 0, NaN below."""

    op: Literal["log10"]
    formula = "log(x), to the base 10"
    kinks = (0,)
    autocast = "float32"


class Log1p(Unary):
    """To its own digits where x is small, too. -infinity at -1, NaN below."""

    op: Literal["log1p"]
    formula = "log(1 + x), to the base e"
    kinks = (-1,)
    autocast = "float32"


class Sqrt(Unary):
    """NaN below 0; the gradient is infinite at 0."""

    op: Literal["sqrt"]
    formula = "sqrt(x)"
    kinks = (0,)


class Rsqrt(Unary):
    """Infinite at 0, NaN below."""

    op: Literal["rsqrt"]
    formula = "1 / sqrt(x)"
    kinks = (0,)
    autocast = "float32"


class Reciprocal(Unary):
    """Infinite at 0."""

    op: Literal["reciprocal"]
    formula = "1 / x"
    kinks = (0,)
    autocast = "float32"


class Square(Unary):
    op: Literal["square"]
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

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        exponents = chain.graph.literal(self.exponent), chain.graph.literal(self.exponent - 1)
        return chain.graph.add("real_power", x, *exponents, name="pow_value")

    def eager(self, x: str) -> str:
        return f"torch.pow({x}, {float(self.exponent)!r})"

    def converted(self) -> list[float | str]:
        return [self.exponent]


STEPS = (Abs, Neg, Exp, Exp2, Expm1, Log, Log2, Log10, Log1p, Sqrt, Rsqrt, Reciprocal, Square, Pow)
