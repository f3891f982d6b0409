"""What is known of an element-wise function: its C++, its gradient, what it costs, and whether to keep its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusegen.ir.graph import Graph, Node

Gradient = Callable[[Graph, Node, Node], Sequence[Node | None]]
"""A rule that gets the graph, the node and the gradient of its result. It returns one contribution for each operand, at
the axes of the result (the caller sums it to the operand's axes); None where an operand takes no gradient.
Formulas, and the values at kinks, are those of PyTorch's derivatives.yaml and of the CUDA kernels it names."""


@dataclass(frozen=True)
class Function:
    """One entry.

    by_sign: the gradient depends on the sign of x alone, which the result has, too: where the result is in memory, the
    function `NAME_backward` takes it in the place of x, which need not be.
    cpp: a function of C++, or of math.cuh or activations.cuh in templates/support, where that has not the same name; or
    a pattern with one operator at most, such as "{} + {}".
    operations: instructions for an element; a costly function counts as one, since no choice depends on it.
    is_product: its last instruction is a multiplication, which a following addition joins to a fused multiply-add.
    by_result: as exact as results of type `Out` can show, which is then its first template argument.
    costly: takes many times as long as an addition, so kernels keep the value for later passes.
    slope: a derivative that shares with the function itself what costs most of it; row kernels keep it in place of
    that.
    definition: of the C++ function, where templates/support has none, as of a plugin. It is written into kernels.cu.
    """

    name: str
    gradient: Gradient | None = None
    cpp: str = ""
    operations: int = 1
    is_product: bool = False
    by_result: bool = False
    costly: bool = False
    slope: bool = False
    by_sign: bool = False
    definition: str = ""

    @property
    def is_call(self) -> bool:
        return "{" not in self.cpp

    @property
    def call(self) -> str:
        """What stands before the brackets of the arguments."""
        return f"{self.cpp or self.name}<Out>" if self.by_result else self.cpp or self.name
