"""Affine forms: ((base - center) * scale + shift), with coefficients that vary over fewer axes than the base.

A chain of additions and multiplications by such coefficients costs an element one fused multiply-add, or one
subtraction and one multiply-add; the coefficients are computed once for each column, group of a row, or launch.

What rounding allows:

- A center is what a normalisation subtracts. It stays a subtraction before the scaling: x * a + (b - mean * a)
  is exact algebra, but where |mean| is far above the deviation both terms are large and their difference has lost the
  low bits.
- Shifts after a scale or a center are added to each other before they are added to the value: (x a + b) + c becomes
  x a + (b + c), and (x + b) + c - mean becomes x - (mean - (b + c)). The rounding error of b + c is one of b, c or
  their sum, as is the error of x + b. Only where x is exact and cancels b could eager have none; `Rewriter` says
  what counts as exact. A sum by itself, (x + b) + c, keeps its order.
- Scales are multiplied with each other, (x * a) * c becomes x * (a * c), and shifts with later scales, as far as the
  products stay normal numbers: `ranges`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from fusegen.ir.axes import SCALAR, Axes, broadcast
from fusegen.ir.graph import Graph, Node
from fusegen.ir.ranges import is_in_range, is_moderate

Coefficient = Node | tuple
"""A node, or (op, coefficient, ...): an expression that has not been given a name yet."""

_LONGEST_NAME = 40
_VERBS = {"add": "plus", "sub": "minus", "mul": "times"}


@dataclass(frozen=True)
class Form:
    """The value ((base - center) * product(scales) + shift).

    owner: what named coefficients are called after, such as "bn" in `bn_scale`.
    """

    base: Node
    center: Coefficient | None = None
    scales: tuple[Node, ...] = ()
    shift: Coefficient | None = None
    owner: str = ""

    @property
    def is_bare(self) -> bool:
        return self.center is None and not self.scales and self.shift is None

    def can_be_scaled(self, factors: Iterable[Node]) -> bool:
        """Whether its coefficients stay in the range of numbers, multiplied by these factors."""
        return self.is_bare or is_in_range((*self.scales, *factors))

    def scaled(self, factors: Iterable[Node]) -> Form:
        factors = tuple(factors)
        shift = self.shift
        if shift is not None:
            for factor in factors:
                minus = factor.op == "literal" and factor.attribute == -1
                shift = _negated(shift) if minus else ("mul", shift, factor)
        return replace(self, scales=(*self.scales, *factors), shift=shift)

    def shifted(self, op: str, by: Coefficient) -> Form:
        """op: "add" or "sub"."""
        if self.shift is None:
            return replace(self, shift=by if op == "add" else ("negate", by))
        if isinstance(self.shift, tuple) and self.shift[0] == "negate":
            # -a + b is b - a, and -a - b is -(a + b).
            negated = self.shift[1]
            return replace(self, shift=("sub", by, negated) if op == "add" else ("negate", ("add", negated, by)))
        return replace(self, shift=(op, self.shift, by))


def _negated(coefficient: Coefficient) -> Coefficient:
    match coefficient:
        case ("negate", inner):
            return inner
        case ("sub", left, right):
            return ("sub", right, left)
    return ("negate", coefficient)


def axes_of(*coefficients: Coefficient | None) -> Axes:
    """The axes of the broadcast of some coefficients; None stands for none."""
    found: list[Axes] = []
    for each in coefficients:
        if isinstance(each, Node):
            found.append(each.axes)
        elif each is not None:
            found.append(axes_of(*each[1:]))
    return broadcast(*found)


def fits(coefficient: Coefficient | None, over: Axes) -> bool:
    """Whether the coefficient is constant within each element of `over`."""
    return coefficient is None or axes_of(coefficient) <= over


def emit(graph: Graph, coefficient: Coefficient, name: str) -> Node:
    """The node of a coefficient; what is inside it is written inside its expression."""
    if isinstance(coefficient, Node):
        return coefficient
    return graph.add(coefficient[0], *(_inside(graph, part, name) for part in coefficient[1:]), name=name)


def _inside(graph: Graph, coefficient: Coefficient, outer: str) -> Node:
    """A part of the coefficient called `outer`: its name says what it is, unless that is too long."""
    if isinstance(coefficient, Node):
        return coefficient
    op, *parts = coefficient
    operands = [_inside(graph, part, outer) for part in parts]
    name = f"_{_VERBS.get(op, op)}_".join(operand.name for operand in operands)
    if len(operands) == 1:
        name = f"{op}_{name}"
    return graph.add(op, *operands, name=name if len(name) <= _LONGEST_NAME else f"{outer}_part", temporary=True)


def product(graph: Graph, factors: Iterable[Node], name: str) -> Node | None:
    """One node for all factors, multiplied in the order given; None if there is nothing but 1."""
    coefficient: Coefficient | None = None
    for factor in merged_literals(graph, factors):
        coefficient = factor if coefficient is None else ("mul", coefficient, factor)
    return None if coefficient is None else emit(graph, coefficient, name)


def factors_of(node: Node, given: Collection[Node]) -> tuple[Node, ...]:
    """What a coefficient is a product of. given: nodes in memory, whose operands are no part of the program."""
    if node.op != "mul" or node in given:
        return (node,)
    return tuple(factor for operand in node.operands for factor in factors_of(operand, given))


def merged_literals(graph: Graph, factors: Iterable[Node]) -> tuple[Node, ...]:
    """The factors with their literals made one, and without a literal 1."""
    factors = tuple(factors)
    literals = [factor.number for factor in factors if factor.op == "literal"]
    value = math.prod(literals)
    if len(literals) > 1 and not is_moderate(factors):
        return factors  # as PyTorch multiplies them, one after the other
    others = tuple(factor for factor in factors if factor.op != "literal")
    return others if value == 1 else (*others, graph.literal(value))


def written(graph: Graph, form: Form, name: str, temporary: bool) -> Node:
    """The nodes that compute a form; the last one is called `name`.

    temporary: of the last one, if it is one operation on a value with a line of its own: longer ones get their line.
    """
    value, owner = form.base, form.owner or name
    scale, minus = _scale(graph, form, owner)
    steps: list[tuple[str, Node | None]] = []
    if form.center is not None:
        steps.append(("sub", emit(graph, form.center, f"{owner}_center")))
    if scale is not None:
        steps.append(("mul", scale))
    if minus and form.shift is None:
        steps.append(("negate", None))
    elif form.shift is not None:
        steps.append(_shift(graph, form.shift, owner, minus))
    temporary = temporary and len(steps) == 1 and not form.base.temporary
    for position, (op, coefficient) in enumerate(steps):
        last = position == len(steps) - 1
        called = name if last else f"{owner}_{'centered' if op == 'sub' else 'scaled'}"
        operands: tuple[Node, ...] = (value,) if coefficient is None else (value, coefficient)
        if op == "from":
            op, operands = "sub", operands[::-1]
        value = graph.add(op, *operands, name=called, temporary=temporary if last else True)
    return value


def _scale(graph: Graph, form: Form, owner: str) -> tuple[Node | None, bool]:
    """The scale, and whether a minus sign is left to be applied: before a shift it costs nothing."""
    # In one order, so that equal scales are one node.
    factors = merged_literals(graph, sorted(form.scales, key=lambda factor: (factor.axes == SCALAR, factor.index)))
    minus = graph.literal(-1) in factors
    if minus and (form.shift is not None or len(factors) == 1):
        return product(graph, [factor for factor in factors if factor.attribute != -1], f"{owner}_scale"), True
    return product(graph, factors, f"{owner}_scale"), False


def _shift(graph: Graph, shift: Coefficient, owner: str, minus: bool) -> tuple[str, Node]:
    name = f"{owner}_shift"
    if minus:
        return "from", emit(graph, shift, name)
    if isinstance(shift, tuple) and shift[0] == "negate":
        return "sub", emit(graph, shift[1], name)
    return "add", emit(graph, shift, name)
