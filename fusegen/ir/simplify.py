"""Rewrites a program's graph so that its elements cost the fewest operations: affine chains are folded.

The pass runs behind autodiff, on the forward and on the backward program alike. Four rules:

- A chain of affine steps is one form ((x - center) * scale + shift), see `affine`.
- The moments of x a + b are those of x a: mean(x a + b) = mean(x a) + b and var(x a + b) = var(x a), where b is
  constant over what is reduced. Not those of x: var(x) may be infinite or zero where var(x a) is neither.
- Factors that are constant over what is summed leave the sum: sum(w t) = w sum(t).
- The gradient through a normalisation takes its sums as coefficients, see `fold_norms`.

A fold that saves nothing, because a value between is needed as it is or because the coefficient costs as much as what
it replaces, only moves work. `opaque` names the nodes that stay values of their own; `fusegen.plan.folding`
chooses them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from fusegen.ir import fold_norms
from fusegen.ir.affine import Coefficient, Form, emit, extent_of, factors_of, fits, merged_literals, written
from fusegen.ir.graph import Graph, Node, ancestors, verify
from fusegen.ir.ranges import is_in_range, is_moderate


def simplify(
    graph: Graph,
    sinks: Sequence[Node],
    given: Collection[Node],
    rounded: Collection[Node] = (),
    opaque: Collection[Node] = (),
) -> dict[Node, Node]:
    """For each sink the node that computes it in a new graph, which shares leaves and `given` nodes with this one.

    given: nodes that lie in memory. rounded: leaves that carry a rounding error of their own, such as a matrix
    product. opaque: nodes that no chain is folded across.
    """
    found = Simplifier(graph, ancestors(sinks, given), given, rounded, opaque).run(sinks)
    verify(found.values())
    return found


class Simplifier:
    """One run over the nodes of a program, in topological order.

    Exactness: a leaf that is not `rounded` may hold numbers that cancel a bias exactly. Nothing is folded across its
    first addition then, as x + (b - mean) may have lost what (x + b) - mean has kept. Any other value has a rounding
    error of its own, as large as that of the folded coefficient.

    forms: each node of the program as an affine form over a node of the new graph. moments_of: for moments, the form
    of what they are of; the new moments are of its base. summed: what a sum is taken of, and all behind that.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        given: Collection[Node],
        rounded: Collection[Node],
        opaque: Collection[Node],
    ) -> None:
        self.graph = Graph(graph.reserved, first_index=graph.first_index + len(graph.nodes))
        self.nodes, self.given, self.rounded, self.opaque = nodes, set(given), set(rounded), set(opaque)
        sums = [operand for node in nodes if node.op == "sum" for operand in node.operands]
        self.summed = set(ancestors(sums, self.given))
        self.forms: dict[Node, Form] = {}
        self.moments_of: dict[Node, Form] = {}
        self._values: dict[Node, Node] = {}

    def run(self, sinks: Iterable[Node]) -> dict[Node, Node]:
        for node in self.nodes:  # before anything else: these have their names already
            if node.is_leaf or node in self.given:
                self.forms[node] = Form(self.graph.adopt(node))
        for node in self.nodes:
            if node not in self.forms:
                self.forms[node] = self._rule(node)(self, node)
                if node in self.opaque:
                    self.forms[node] = Form(self.value(node))
        return {sink: self.value(sink) for sink in sinks}

    def _rule(self, node: Node) -> Rule:
        if node.op in _REDUCTIONS:
            return _REDUCTIONS[node.op]
        return ELEMENT_WISE.get(node.op, _same) if node.extent.is_full else _same

    def value(self, node: Node) -> Node:
        """The new node that holds this node's values."""
        if node not in self._values:
            form = self.forms[node]
            if node.op in ("add", "sub") and form.center is None and not form.scales:
                # A sum keeps its order: there is little to save, and before a kink, such as a clamp's bound, the last
                # bit decides. This way it is eager's.
                self._values[node] = _same(self, node).base
            else:
                self._values[node] = written(self.graph, form, node.name, node.temporary)
        return self._values[node]

    def settled(self, node: Node) -> Form:
        """The node's form, or the node as a value where its shift may not be taken together with another."""
        form = self.forms[node]
        exact = form.base.is_leaf and form.base not in self.rounded
        if exact and form.shift is not None and form.center is None and not form.scales:
            return Form(self.value(node))
        return form


Rule = Callable[[Simplifier, Node], Form]


def _same(s: Simplifier, node: Node) -> Form:
    """The same function of the new operands."""
    made = s.graph.add(
        node.op,
        *(s.value(operand) for operand in node.operands),
        name=node.name,
        extent=node.extent if node.is_reduction else None,
        attribute=node.attribute,
        temporary=node.temporary,
    )
    return Form(made)


def _detach(s: Simplifier, node: Node) -> Form:
    return s.forms[node.operands[0]]


# Arithmetic


def _full_and_small(node: Node) -> tuple[Node, Node] | None:
    """The operand of full size and the coefficient; None if there are not one of each."""
    left, right = node.operands
    if left.extent.is_full == right.extent.is_full:
        return None
    return (left, right) if left.extent.is_full else (right, left)


def _negate(s: Simplifier, node: Node) -> Form:
    return _scaled(s, node, node.operands[0], (s.graph.literal(-1),))


def _mul(s: Simplifier, node: Node) -> Form:
    if all(operand.extent.is_full for operand in node.operands):
        return _product(s, node)
    if (pair := _full_and_small(node)) is None:
        return _same(s, node)
    full, small = pair
    return _scaled(s, node, full, factors_of(s.value(small)))


def _scaled(s: Simplifier, node: Node, operand: Node, factors: Sequence[Node]) -> Form:
    form = s.settled(operand)
    if extent_of(*form.scales, form.shift, *factors).is_full or not form.can_be_scaled(factors):
        form = Form(s.value(operand))
    return replace(form, owner=form.owner or node.name).scaled(factors)


def _product(s: Simplifier, node: Node) -> Form:
    """(t a) (v b) = (t v) a b for coefficients a and b."""
    parts: list[Node] = []
    scales: tuple[Node, ...] = ()
    for operand in node.operands:
        form = s.forms[operand]
        together = (*scales, *form.scales)
        if form.shift is None and form.scales and not extent_of(*together).is_full and is_in_range(together):
            scales += form.scales
            parts.append(written(s.graph, replace(form, scales=()), f"{form.owner}_centered", False))
        else:
            parts.append(s.value(operand))
    name = "_".join(part.name for part in parts) if scales else node.name
    base = s.graph.add("mul", *sorted(parts, key=lambda part: part.index), name=name, temporary=True)
    return Form(base, scales=scales, owner=node.name)


def _add(s: Simplifier, node: Node) -> Form:
    if (pair := _full_and_small(node)) is None:
        return _same(s, node)
    return _shifted(s, "add", node, *pair)


def _sub(s: Simplifier, node: Node) -> Form:
    left, right = node.operands
    if _full_and_small(node) is None:
        return _same(s, node)
    if left.extent.is_full:
        return _shifted(s, "sub", node, left, right)
    minus = _scaled(s, node, right, (s.graph.literal(-1),))
    if extent_of(minus.shift, s.value(left)).is_full:
        return _same(s, node)
    return minus.shifted("add", s.value(left))


def _shifted(s: Simplifier, op: str, node: Node, full: Node, small: Node) -> Form:
    form, by = s.settled(full), s.value(small)
    if extent_of(form.shift, by).is_full:
        form = Form(s.value(full))
    return replace(form.shifted(op, by), owner=form.owner or node.name)


# Reductions


def _sum(s: Simplifier, node: Node) -> Form:
    """sum(w t) = w sum(t)."""
    (operand,) = node.operands
    form = s.forms[operand]
    outer = tuple(scale for scale in form.scales if fits(scale, node.extent))
    if form.shift is not None or not outer or not is_moderate(outer):
        return _same(s, node)
    inner = replace(form, scales=tuple(scale for scale in form.scales if scale not in outer))
    value = written(s.graph, inner, f"{operand.name}_unscaled", True)
    total = s.graph.add("sum", value, extent=node.extent, name=f"{value.name}_sum")
    coefficient: Coefficient = total
    for factor in merged_literals(s.graph, outer):
        coefficient = ("mul", coefficient, factor)
    name = f"{node.name}_scaled" if total.name == node.name else node.name
    return Form(emit(s.graph, coefficient, name))


def _moments(s: Simplifier, node: Node) -> Form:
    """The moments of the base; `moments_of` says what they have to be mapped by."""
    (operand,) = node.operands
    form = s.settled(operand)
    if form.center is not None or not fits(form.shift, node.extent):
        form = Form(s.value(operand))
    if form.scales:
        form = Form(written(s.graph, replace(form, shift=None), f"{operand.name}_scaled", True), shift=form.shift)
    s.moments_of[node] = form
    return Form(s.graph.add("moments", form.base, extent=node.extent, name=node.name))


def _mean(s: Simplifier, node: Node) -> Form:
    """mean(x + b) = mean(x) + b."""
    return Form(_mapped_mean(s, node.operands[0], node.name))


def _mapped_mean(s: Simplifier, moments: Node, name: str) -> Node:
    form = s.moments_of[moments]
    return written(s.graph, replace(form, base=_of_base(s, moments, "mean", name), owner=name), name, False)


def _variance(s: Simplifier, node: Node) -> Form:
    """var(x + b) = var(x). Zero times the mean keeps a NaN or an infinity of b visible, as that of the values would."""
    (moments,) = node.operands
    coefficient: Coefficient = _of_base(s, moments, "variance", node.name)
    if s.moments_of[moments].shift is not None:
        mean = _mapped_mean(s, moments, f"{node.name.removesuffix('_variance')}_mean")
        coefficient = ("add", coefficient, ("vanishing", mean))
    return Form(emit(s.graph, coefficient, node.name))


def _of_base(s: Simplifier, moments: Node, op: str, name: str) -> Node:
    """The mean or variance of the base that `moments_of` names; `name` is what that of the values is called."""
    form = s.moments_of[moments]
    return s.graph.add(op, s.value(moments), name=f"{name}_of_{form.base.name}" if form.shift is not None else name)


ELEMENT_WISE: dict[str, Rule] = {
    **{"add": _add, "sub": _sub, "mul": _mul, "negate": _negate, "detach": _detach},
    **fold_norms.RULES,
}
_REDUCTIONS: dict[str, Rule] = {"sum": _sum, "moments": _moments, "mean": _mean, "variance": _variance}
