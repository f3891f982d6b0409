"""Ops that keep the running value between bounds."""

from __future__ import annotations

from typing import Annotated, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.diagnostics import StepError
from fusegen.ir.graph import Node
from fusegen.ops.scalars import Scalar, scalar_text
from fusegen.ops.step import Step
from fusegen.spec.base import Given, meaning


class Clamp(Step):
    """Passes the gradient at both bounds. At least one of them is there."""

    op: Literal["clamp"]
    min: Annotated[Given[Scalar], meaning("the lower bound; without it there is none", 0.0)] = None
    max: Annotated[Given[Scalar], meaning("the upper bound; without it there is none", 1.0)] = None
    formula = "min(max(x, min), max)"
    kinks = ("min", "max")
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        if self.min is None:
            if self.max is None:
                raise StepError("FG307", "clamp needs min, max or both")
            return chain.graph.add("clamp_max", x, chain.scalar(self.max, "max"), name="clamped")
        if self.max is None:
            return chain.graph.add("clamp_min", x, chain.scalar(self.min, "min"), name="clamped")
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
    min_val: Annotated[Scalar, meaning("the lower bound", -2.0)] = -1.0
    max_val: Annotated[Scalar, meaning("the upper bound", 2.0)] = 1.0
    formula = "min(max(x, min_val), max_val)"
    kinks = ("min_val", "max_val")
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
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


class Relu6(Step):
    """Passes no gradient at the bounds."""

    op: Literal["relu6"]
    formula = "min(max(x, 0), 6)"
    kinks = (0, 6)
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        return chain.graph.add("hardtanh", x, chain.graph.literal(0), chain.graph.literal(6), name="relu6_value")

    def eager(self, x: str) -> str:
        return f"F.relu6({x})"


STEPS = (Clamp, Hardtanh, Relu6)
