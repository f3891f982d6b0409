"""Reverse-mode differentiation of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusegen.errors import InternalError
from fusegen.ir.axes import Axes
from fusegen.ir.functions.catalogue import FUNCTIONS
from fusegen.ir.functions.gradients import through_output
from fusegen.ir.graph import Graph, Node, ancestors
from fusegen.ir.reduce import sum_to
from fusegen.ir.reductions import REDUCTIONS, stored_operand


def differentiate(
    graph: Graph, result: Node, grad: Node, leaves: Sequence[Node], further: Sequence[tuple[Node, Node]] = ()
) -> dict[Node, Node]:
    """The gradient of each leaf that `result` depends on, as nodes of the same graph.

    grad: the gradient that flows into `result`. further: other results, each with the gradient that flows into it; a
    value may be several results.
    Contributions to one value are added before they are summed over the axes that the value lacks, so a parameter that
    is used twice costs one reduction.
    """
    results = [(result, grad), *further]
    nodes = ancestors([each for each, _ in results])
    wanted = _depend_on(nodes, leaves)
    contributions: dict[Node, dict[Axes, Node]] = {}
    for each, flow in results:
        _accumulate(graph, contributions.setdefault(each, {}), flow, each)
    gradients: dict[Node, Node] = {}
    for node in reversed(nodes):
        if node not in wanted or node not in contributions:
            continue
        total = _total(graph, node, contributions.pop(node))
        if node.is_leaf:
            gradients[node] = total
            continue
        if node.is_reduction:
            (operand,) = node.operands
            if (through := REDUCTIONS[node.op].gradient) is None:
                raise InternalError(f"no gradient rule for {node!r}")
            _accumulate(graph, contributions.setdefault(operand, {}), through(graph, node, total), operand)
            continue
        function = FUNCTIONS.get(node.op)
        if function is None:
            raise InternalError(f"no function is called '{node.op}', which {node!r} applies")
        if function.gradient is None:
            raise InternalError(f"no gradient rule for {node!r}")
        rule = function.gradient
        if function.by_sign and _is_stored(graph, node, results):
            rule = through_output
        for operand, part in zip(node.operands, rule(graph, node, total), strict=True):
            if part is not None and operand in wanted:
                _accumulate(graph, contributions.setdefault(operand, {}), part, operand)
    return gradients


def _is_stored(graph: Graph, node: Node, results: Iterable[tuple[Node, Node]]) -> bool:
    """Whether a value is in memory behind the forward pass: as a result, or as what the backward pass compares."""
    return any(each is node for each, _ in results) or any(stored_operand(other) is node for other in graph.nodes)


def _depend_on(nodes: Iterable[Node], leaves: Sequence[Node]) -> set[Node]:
    found = set(leaves)
    for node in nodes:
        if any(operand in found for operand in node.operands):
            found.add(node)
    return found


def _accumulate(graph: Graph, parts: dict[Axes, Node], part: Node, operand: Node) -> None:
    before = parts.get(part.axes)
    if before is not None:
        part = graph.add("add", before, part, name=f"d_{operand.name}", temporary=True)
    parts[part.axes] = part


def _total(graph: Graph, node: Node, parts: dict[Axes, Node]) -> Node:
    summed = [sum_to(graph, part, node.axes) for part in parts.values()]
    total = summed[0]
    for part in summed[1:]:
        total = graph.add("add", total, part, name=f"d_{node.name}", temporary=True)
    if total.axes != node.axes:
        total = graph.add("expand", total, axes=node.axes, name=f"d_{node.name}_expanded", temporary=True)
    return total
