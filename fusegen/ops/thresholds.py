"""Activations that cut off what is small, by the names that torch.nn.functional has for them."""

from __future__ import annotations

from typing import Annotated, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.diagnostics import StepError
from fusegen.ir.graph import Node
from fusegen.ops.scalars import Scalar, scalar_text
from fusegen.ops.step import Step
from fusegen.spec.base import meaning

_LARGEST = 3.4028234663852886e38  # of float32


class Threshold(Step):
    op: Literal["threshold"]
    threshold: Annotated[Scalar, meaning("up to it, the result is `value`", 0.5)]
    value: Annotated[Scalar, meaning("the result up to the threshold", 0.0)]
    formula = "x above threshold, else value"
    kinks = ("threshold",)
    jumps = True
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        constants = chain.scalar(self.threshold, "threshold"), chain.scalar(self.value, "value")
        return chain.graph.add("threshold", x, *constants, name="threshold_value")

    def eager(self, x: str) -> str:
        return f"F.threshold({x}, {scalar_text(self.threshold)}, {scalar_text(self.value)})"

    def converted(self) -> list[float | str]:
        return [self.threshold, self.value]


class Hardshrink(Step):
    op: Literal["hardshrink"]
    lambd: Annotated[Scalar, meaning("from minus it to it, the result is 0", 0.25)] = 0.5
    formula = "x beyond lambd or -lambd, else 0"
    kinks = ("lambd", "-lambd")
    jumps = True
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        return chain.graph.add("hardshrink", x, chain.scalar(self.lambd, "lambd"), name="hardshrink_value")

    def eager(self, x: str) -> str:
        return f"F.hardshrink({x}, {scalar_text(self.lambd)})"

    def converted(self) -> list[float | str]:
        return [self.lambd]


class Softshrink(Step):
    op: Literal["softshrink"]
    lambd: Annotated[Scalar, meaning("from minus it to it, the result is 0; not negative", 0.25)] = 0.5
    formula = "x - lambd above lambd, x + lambd below -lambd, else 0"
    kinks = ("lambd", "-lambd")
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        if not isinstance(self.lambd, str) and not 0 <= self.lambd <= _LARGEST:
            raise StepError("FG205", f"lambd {self.lambd} is negative, or no number of float32", "lambd")
        return chain.graph.add("softshrink", x, chain.scalar(self.lambd, "lambd"), name="softshrink_value")

    def eager(self, x: str) -> str:
        return f"F.softshrink({x}, {scalar_text(self.lambd)})"

    def refused(self, owner: str, training: bool) -> list[str]:
        # PyTorch takes no infinity either.
        return [f"not 0 <= {scalar_text(self.lambd)} <= {_LARGEST!r}"] if isinstance(self.lambd, str) else []

    def converted(self) -> list[float | str]:
        return [self.lambd]


class Tanhshrink(Step):
    """To its own digits where x is small, too."""

    op: Literal["tanhshrink"]
    formula = "x - tanh(x)"
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        tanh = chain.graph.add("tanh", x, name="tanh_value")
        return chain.graph.add("tanhshrink", x, tanh, name="tanhshrink_value")

    def eager(self, x: str) -> str:
        return f"F.tanhshrink({x})"


STEPS = (Threshold, Hardshrink, Softshrink, Tanhshrink)
