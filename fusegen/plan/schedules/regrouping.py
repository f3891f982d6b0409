"""Values of a group that follow from a reduction of the whole row.

What follows from the sums of a pass is computed for each unit that the pass reduces. A pass over rows cannot compute a
value of each group, since a row has several. The row's value is therefore reduced once more, to the largest in each
group, which is the value itself, bit for bit: the pass over the groups that takes it comes behind that over the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fusegen.ir.graph import Graph, Node
from fusegen.plan.programs.model import Tensor
from fusegen.plan.programs.phases import PhaseAnalysis


def regrouped(reserved: Collection[str], analysis: PhaseAnalysis, outputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs, by nodes of a new graph in which the earliest of such values follow from passes over groups.
    reserved: names that only tensors and constants may have."""
    misplaced = analysis.misplaced
    first = min(analysis.level[node] for node in misplaced)
    rows = analysis.phases[first - 1].axes
    last = max(node.index for node in analysis.nodes)
    graph = Graph(frozenset(reserved), analysis.nodes[0].view, last + 1)
    found: dict[Node, Node] = {}
    for node in analysis.nodes:
        if node.is_leaf or node in analysis.given:
            found[node] = graph.adopt(node)
            continue
        operands = [found[operand] for operand in node.operands]
        if node in misplaced and analysis.level[node] == first:
            of_rows = [analysis.level[operand] == first and operand.axes <= rows for operand in node.operands]
            pairs = zip(operands, of_rows, strict=True)
            operands = [_in_groups(graph, operand, node) if of_row else operand for operand, of_row in pairs]
        found[node] = graph.add_again(node, operands)
    return [replace(tensor, node=found[tensor.node]) for tensor in outputs]


def _in_groups(graph: Graph, value: Node, user: Node) -> Node:
    """A row's value as one of each group."""
    of_elements = graph.add("expand", value, axes=graph.view, name=f"{value.name}_of_elements", temporary=True)
    return graph.add("amax", of_elements, axes=user.axes, name=f"{value.name}_of_groups")
