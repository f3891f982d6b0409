"""Rewrites a program's graph so that its elements cost the fewest operations: affine chains are folded.

The pass runs after autodiff, on the forward and on the backward program alike. Each rewrite has a name, by which a
spec may switch it off:

- affine: a chain of affine steps is one form ((x - center) * scale + shift), see `affine`.
- moments: the moments of x a + b are those of x a: mean(x a + b) = mean(x a) + b and var(x a + b) = var(x a), where b
  is constant over what is reduced. Not those of x: var(x) may be infinite or zero where var(x a) is neither.
- sums: factors that are constant over what is summed leave the sum: sum(w t) = w sum(t).
- norms: a normalisation is such a form; a bias in front of it moves the center.
- norm_gradients: the gradient through a normalisation takes its sums as coefficients, see `fold_norms`.

A fold that saves nothing, because a value between is needed as it is or because the coefficient costs as much as what
it replaces, only moves work. `barriers` names the nodes that stay values of their own; `fusegen.plan.schedules.folding`
chooses them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusegen.ir.graph import Graph, Node, ancestors, verify
from fusegen.ir.rewriter import Rewriter
from fusegen.ir.rewrites import OF_ELEMENTS, REWRITES, rewrite_of, rules

ELEMENT_WISE = rules(OF_ELEMENTS)
_OF_REDUCTIONS = [name for name in REWRITES if name not in OF_ELEMENTS]


def simplify(
    graph: Graph,
    sinks: Sequence[Node],
    given: Collection[Node],
    inexact: Collection[Node] = (),
    barriers: Collection[Node] = (),
    without: Collection[str] = (),
    used: set[str] | None = None,
) -> tuple[dict[Node, Node], set[Node]]:
    """For each sink the node that computes it in a new graph, which shares leaves and `given` nodes with this one; and
    the nodes of this graph that became forms. If one of the others were a barrier too, nothing would change.

    given: nodes that lie in memory. inexact: leaves that carry a rounding error of their own, such as a matrix
    product. barriers: nodes that no chain is folded across. without: the rewrites that are switched off. used: gets the
    names of those that are made.
    """
    nodes = ancestors(sinks, given)
    of_elements, of_reductions = rules(OF_ELEMENTS, without), rules(_OF_REDUCTIONS, without)
    rewriter = Rewriter(graph, nodes, given, inexact, barriers, of_elements, of_reductions)
    found = rewriter.rewrite(sinks)
    if used is not None:
        used |= {name for node in rewriter.changed if (name := rewrite_of(node.op)) is not None}
    verify(found.values())
    return found, {node for node, form in rewriter.forms.items() if not form.is_bare}
