"""Rewrites a program's nodes one by one: each becomes an affine form over a node of a new graph, by the rule of its
operation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from fusegen.ir.affine import Coefficient, Form, axes_of, written
from fusegen.ir.functions.catalogue import is_by_sign
from fusegen.ir.graph import Graph, Node, ancestors


class Rewriter:
    """Goes over the nodes of a program once, in topological order.

    Exactness: a leaf that is not `inexact` may hold numbers that cancel a bias exactly. Nothing is folded across its
    first addition then, as x + (b - mean) may have lost what is left in (x + b) - mean. Any other value has a rounding
    error of its own, as large as that of the folded coefficient.

    forms: each node of the program as an affine form over a node of the new graph. moments_of: for moments, the form
    of what they are of; the new moments are of its base. summed: what a sum is taken of, and all that this needs.
    changed: the nodes of which a rule has made something else than the same function.
    element_wise, reductions: the rules, by the operation of the nodes that they are for.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        given: Collection[Node],
        inexact: Collection[Node],
        barriers: Collection[Node],
        element_wise: Mapping[str, Rule],
        reductions: Mapping[str, Rule],
    ) -> None:
        self.graph = Graph(graph.reserved, graph.view, graph.first_index + len(graph.nodes))
        self.nodes, self.given, self.inexact, self.barriers = nodes, set(given), set(inexact), set(barriers)
        self._element_wise, self._reductions = element_wise, reductions
        sums = [operand for node in nodes if node.op == "sum" for operand in node.operands]
        self.summed = set(ancestors(sums, self.given))
        self.forms: dict[Node, Form] = {}
        self.moments_of: dict[Node, Form] = {}
        self.changed: set[Node] = set()
        self._values: dict[Node, Node] = {}

    def rewrite(self, sinks: Iterable[Node]) -> dict[Node, Node]:
        for node in self.nodes:  # before anything else: these have their names already
            if node.is_leaf or node in self.given:
                self.forms[node] = Form(self.graph.adopt(node))
        for node in self.nodes:
            if node not in self.forms:
                self.forms[node] = self._rule(node)(self, node)
                if node in self.barriers:
                    self.forms[node] = Form(self.value(node))
                elif self._is_changed(node):
                    self.changed.add(node)
        return {sink: self.value(sink) for sink in sinks}

    def _is_changed(self, node: Node) -> bool:
        form, moments = self.forms[node], self.moments_of.get(node)
        return not form.is_bare or form.base.op != node.op or (moments is not None and not moments.is_bare)

    def _rule(self, node: Node) -> Rule:
        if node.op in self._reductions:
            return self._reductions[node.op]
        return self._element_wise.get(node.op, same) if node.is_full else same

    def value(self, node: Node) -> Node:
        """The new node that holds this node's values."""
        if node not in self._values:
            form = self.forms[node]
            own = node not in self.given  # the operands of what is given are no part of the program
            if own and node.op in ("add", "sub") and form.center is None and not form.scales:
                # A sum keeps its order: there is little to save, and before a kink, such as a clamp's bound, the last
                # bit decides. This way it is eager's.
                self._values[node] = same(self, node).base
            else:
                self._values[node] = written(self.graph, form, node.name, node.temporary)
        return self._values[node]

    def by_element(self, *coefficients: Coefficient | None) -> bool:
        """Whether what these coefficients make differs from element to element, so that nothing is gained by it."""
        return axes_of(*coefficients) == self.graph.view

    def settled(self, node: Node) -> Form:
        """The node's form, or the node as a value where its shift may not be taken together with another."""
        form = self.forms[node]
        exact = form.base.is_leaf and form.base not in self.inexact
        if exact and form.shift is not None and form.center is None and not form.scales:
            return Form(self.value(node))
        return form


Rule = Callable[[Rewriter, Node], Form]


def same(s: Rewriter, node: Node) -> Form:
    """The form of a node that no rule changes: its function of the rewritten operands."""
    return Form(s.graph.add_again(node, [s.value(_with_sign(s, node, operand)) for operand in node.operands]))


def _with_sign(s: Rewriter, node: Node, operand: Node) -> Node:
    """What has the sign of an operand: of a gradient that goes by the sign of a result that is not in memory, what the
    result is of."""
    is_for_sign = is_by_sign(operand) and node.op == f"{operand.op}_backward"
    return operand.operands[0] if is_for_sign and operand not in s.given else operand
